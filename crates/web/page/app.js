// The page: asks the server for the status and for what the panels show, as long as it is seen.
//
// Each look is asked for when the one before is drawn, at most ten times a second: nothing piles up on either side. A
// failure becomes a sentence, and the page asks again; it never stops by itself.

import { Account } from './account.js';
import { Away, keepToken, look, Refused, status, token } from './api.js';
import { Control } from './control.js';
import { byId, setText } from './dom.js';
import { clock, duration, local, moment, time } from './format.js';
import { Overview } from './overview.js';
import { Panel } from './panel.js';
import { read, settings, write } from './state.js';
import { Streams } from './streams.js';
import { TimeBar } from './timebar.js';
import { Verdict } from './verdict.js';

/** @typedef {import('./state.js').Settings} Settings */

/** Panels of the first picture. */
const FIRST = 12;
/** Panels of one request. */
const MOST = 64;
/** Time from one look to the next at least, ms. */
const LOOK_MS = 100;
/** The same of the status, and of attempts after a failure. */
const STATUS_MS = 1000;
/** The past changes rarely. */
const PAST_MS = 1000;
/** Changes that follow each other faster are one step of the Back key, ms. */
const STEP_MS = 1000;
/** From a moment to the next that a number can hold, ns. */
const NEXT = 256;

/** Ends waiting early. */
class Bell {
  constructor() {
    /** @type {Set<() => void>} */
    this.waiting = new Set();
  }

  ring() {
    for (const go of this.waiting) go();
  }

  /** @param {number} ms @returns {Promise<void>} */
  wait(ms) {
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer);
        this.waiting.delete(go);
        resolve();
      };
      const timer = setTimeout(go, Math.max(0, ms));
      this.waiting.add(go);
    });
  }
}

class Page {
  constructor() {
    this.state = read(location.hash);
    /** @type {Map<Settings, Panel>} */
    this.panels = new Map();
    /** Panels of the first picture, by stream. @type {Map<string, Settings>} */
    this.first = new Map();
    /** Names of streams as the newest status has them, results first, then the worst. @type {string[]} */
    this.names = [];
    /** When the address was written last, ms of `performance.now`. */
    this.kept = performance.now();
    /** A recording is still to be shown at its newest run. */
    this.isNew = this.state.at === null;
    /** The present failures, by request; since when, ms. @type {Map<string, {since: number, text: string}>} */
    this.failures = new Map();
    this.isLocked = false;
    /** A moment is written into the field, and is not shown yet. */
    this.isEdited = false;
    /** How far the clock of the server is ahead of the one here, ns. */
    this.ahead = 0;
    this.bell = new Bell();
    this.account = new Account({ go: (at) => this.goFromBelow(at) });
    const account = (/** @type {string} */ path) => this.account.choose(path);
    this.streams = new Streams((stream) => this.toggle(stream), account);
    this.overview = new Overview(account);
    this.control = new Control();
    this.verdict = new Verdict(byId('instrument'), (section, part) => this.lead(section, part));
    this.bar = this.makeBar();
    this.grid = byId('panels').querySelector('.grid') ?? byId('panels');
    this.eye = new IntersectionObserver((entries) => this.see(entries), { rootMargin: '100px' });
    this.listen();
    this.takeToken();
  }

  makeBar() {
    const changed = () => {
      this.keep();
      this.bell.ring();
    };
    return new TimeBar(byId('time'), this.state, (at) => this.go(at), changed, () => this.now());
  }

  /** The time of the server, ns since 1970 UTC. */
  now() {
    return Date.now() * 1e6 + this.ahead;
  }

  listen() {
    document.addEventListener('visibilitychange', () => this.bell.ring());
    window.addEventListener('hashchange', () => {
      // The time bar has the same object.
      Object.assign(this.state, read(location.hash));
      this.takeToken();
      this.bar.setSpan(this.state.span);
      if (this.state.at === null) this.bar.follow();
      else this.bar.cover(this.state.at);
      for (const panel of this.panels.values()) panel.due = 0;
      this.arrange();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      for (const panel of this.panels.values()) panel.theme();
    });
    byId('skip').addEventListener('click', (event) => {
      // The hash is the state of the page.
      event.preventDefault();
      byId('panels').focus();
    });
    const field = /** @type {HTMLInputElement} */ (byId('token'));
    byId('door').addEventListener('submit', (event) => {
      event.preventDefault();
      keepToken(field.value.trim());
      field.value = '';
      this.unlock();
    });
    const at = /** @type {HTMLInputElement} */ (byId('at'));
    at.addEventListener('input', () => (this.isEdited = true));
    at.addEventListener('blur', () => this.showMoment());
    byId('moment').addEventListener('submit', (event) => {
      event.preventDefault();
      const wanted = moment(at.value, this.now());
      if (typeof wanted === 'string') {
        this.refuse(wanted);
        return;
      }
      this.go(wanted);
      at.value = time(wanted);
    });
    byId('now').addEventListener('click', () => {
      this.bar.follow();
      this.go(null);
    });
  }

  /** Moves the token of the address that was opened out of the address. */
  takeToken() {
    const { token: given } = read(location.hash);
    if (!given) return;
    keepToken(given);
    this.kept = performance.now();
    this.keep();
    this.unlock();
  }

  /** Writes what is shown into the address. The Back key goes to what was shown before, but not to each step of a drag. */
  keep() {
    const hash = write(this.state);
    const address = hash ? `#${hash}` : location.pathname;
    const now = performance.now();
    if (hash === location.hash.slice(1)) return;
    if (now - this.kept < STEP_MS) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    this.kept = now;
  }

  /** @param {number | null} at ns since 1970 UTC; null: now */
  go(at) {
    // The number of a moment, and its text, may be before it: what began then would not be there.
    this.state.at = at === null ? null : at + NEXT;
    this.isEdited = false;
    this.refuse('');
    if (at !== null) this.bar.cover(at);
    for (const panel of this.panels.values()) panel.due = 0;
    this.keep();
    this.showMoment();
    this.bell.ring();
  }

  /** Shows a moment that was chosen far below the time bar, and the time bar. @param {number} at */
  goFromBelow(at) {
    this.go(at);
    byId('time').scrollIntoView();
    this.bar.bar.focus({ preventScroll: true });
  }

  /** Says what is wrong with the moment in the field. @param {string} why empty: nothing */
  refuse(why) {
    byId('refused').hidden = why === '';
    setText(byId('refused'), why);
    byId('at').setAttribute('aria-invalid', String(why !== ''));
  }

  showMoment() {
    const { at } = this.state;
    byId('now').setAttribute('aria-pressed', String(at === null));
    document.body.classList.toggle('past', at !== null);
    setText(byId('when'), at === null ? 'Now' : `The past: ${duration(this.now() - at)} ago`);
    this.bar.mark();
    setText(byId('local'), local(at ?? this.now()));
    const field = /** @type {HTMLInputElement} */ (byId('at'));
    if (!this.isEdited && document.activeElement !== field) field.value = time(at ?? this.now());
  }

  /** The panels that are wanted. */
  wanted() {
    if (this.state.panels) return this.state.panels;
    // A panel whose stream is gone stays, and says so.
    for (const name of this.names) {
      if (this.first.size < FIRST && !this.first.has(name)) this.first.set(name, settings(name));
    }
    return [...this.first.values()];
  }

  /** Makes and removes panels, so that those are there that are wanted. */
  arrange() {
    const wanted = this.wanted().slice(0, MOST);
    for (const [key, panel] of this.panels) {
      if (wanted.includes(key)) continue;
      this.eye.unobserve(panel.element);
      panel.close();
      this.panels.delete(key);
    }
    for (const [i, key] of wanted.entries()) {
      let panel = this.panels.get(key);
      if (!panel) {
        panel = new Panel(key, {
          changed: () => this.choose(this.wanted()),
          close: () => this.choose(this.wanted().filter((other) => other !== key)),
          again: () => this.choose(this.wanted().flatMap((other) => (other === key ? [key, { ...key }] : [other]))),
        });
        this.panels.set(key, panel);
        this.eye.observe(panel.element);
      }
      if (this.grid.children[i] !== panel.element) this.grid.insertBefore(panel.element, this.grid.children[i] ?? null);
    }
    byId('panels').hidden = wanted.length === 0;
    this.streams.mark(this.open());
    this.showMoment();
    this.bell.ring();
  }

  /** Names of streams that have a panel. */
  open() {
    return new Set(this.wanted().map((panel) => panel.stream));
  }

  /** @param {Settings[]} panels */
  choose(panels) {
    this.state.panels = [...panels];
    this.keep();
    this.arrange();
  }

  /** @param {string} stream */
  toggle(stream) {
    const panels = this.wanted();
    const rest = panels.filter((panel) => panel.stream !== stream);
    this.choose(rest.length < panels.length ? rest : [...panels, settings(stream)]);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  see(entries) {
    for (const entry of entries) {
      for (const panel of this.panels.values()) if (panel.element === entry.target) panel.isVisible = entry.isIntersecting;
    }
    this.bell.ring();
  }

  /** Shows the field for the token. */
  lock() {
    if (!this.isLocked) {
      this.isLocked = true;
      byId('shown').hidden = byId('moment').hidden = byId('state').hidden = true;
      byId('door').hidden = false;
      byId('token').focus();
    }
    const none = 'This page needs a token. Open the address that `beamport up` or `beamport web` prints, or enter the token.';
    const wrong = 'The server does not take this token. Open the address that `beamport up` or `beamport web` prints, or enter another one.';
    setText(byId('refusal'), token() ? wrong : none);
  }

  unlock() {
    this.isLocked = false;
    byId('door').hidden = true;
    this.bell.ring();
  }

  /**
   * Asks, and keeps what fails as a sentence until the same question is answered again.
   * @param {string} what
   * @param {() => Promise<void>} question
   */
  async attempt(what, question) {
    const asked = token();
    try {
      await question();
      this.failures.delete(what);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (error instanceof Refused && error.isToken) {
        // Not of a token that was entered meanwhile.
        if (asked === token()) this.lock();
      } else {
        let text = `This page cannot show an answer of the server (${why}).`;
        if (error instanceof Refused) text = why;
        if (error instanceof Away) text = `The server does not answer (${why}).`;
        this.failures.set(what, { since: this.failures.get(what)?.since ?? Date.now(), text });
      }
    }
    this.showFailures();
  }

  showFailures() {
    const [failure] = this.failures.values();
    const away = byId('away');
    away.hidden = !failure;
    byId('state').hidden = Boolean(failure) || byId('shown').hidden;
    document.body.classList.toggle('stale', Boolean(failure));
    // The time does not change from one attempt to the next: a screen reader says it once.
    setText(away, failure ? `${failure.text} Since ${clock(failure.since)} UTC; the page asks again each second.` : '');
  }

  async askStatus() {
    const answer = await status();
    byId('shown').hidden = byId('moment').hidden = false;
    const name = answer.data.split('/').filter(Boolean).pop() ?? answer.data;
    setText(byId('title'), name);
    document.title = `${name} · beamport`;
    this.showInstrument(answer);
    if (this.state.at !== null && this.state.at > this.now()) {
      const { at } = this.state;
      this.go(null);
      this.refuse(`${time(at)} is in the future: this page shows now.`);
    }
    this.showMoment();
    const ranked = this.streams.ranked(answer);
    const names = ranked.map((stream) => stream.name);
    const isOther = String([...names].sort()) !== String([...this.names].sort());
    this.names = names;
    this.streams.show(ranked, this.open());
    this.overview.show(answer);
    this.account.take(answer);
    this.control.take(answer);
    this.bar.showRuns(answer.runs);
    this.bar.takeStreams(ranked);
    this.openRecording(answer);
    if (isOther) this.arrange();
  }

  /**
   * Says what is measured, and what is wrong.
   * @param {import('./api.js').Status} status
   */
  showInstrument({ running, verdict }) {
    const { arrived } = this.bar;
    const isRunning = Object.keys(running).length > 0;
    this.verdict.show(verdict, isRunning || arrived === null ? '' : `; last message arrived ${time(arrived)}`);
  }

  /** Shows a recording at its newest run. @param {import('./api.js').Status} status */
  openRecording({ running, streams, runs }) {
    if (!this.isNew || streams.length === 0) return;
    this.isNew = false;
    const isWritten = Object.keys(running).length > 0 || streams.some((stream) => stream.writer !== null);
    const newest = runs.filter((run) => run.stop !== null).pop();
    this.kept = performance.now();
    if (!isWritten && this.state.at === null && newest) this.bar.goToRun(newest.name);
  }

  /**
   * Leads to what a part of the verdict speaks of.
   * @param {string} section
   * @param {import('./api.js').Part} part
   */
  lead(section, { kind, subject, origin }) {
    /** @type {HTMLElement | null} */
    let target = null;
    if (kind === 'alarm' && subject) {
      const open = this.wanted().find((panel) => panel.stream === subject);
      const panel = open ?? settings(subject);
      panel.origin = origin ?? '';
      this.choose(open ? this.wanted() : [panel, ...this.wanted()]);
      target = this.panels.get(panel)?.element ?? null;
    } else if (section === 'streams') {
      target = this.streams.reveal(subject);
    } else if (kind !== 'fault') {
      target = this.overview.row(section, subject);
    }
    target ??= byId(byId(section).hidden ? 'time' : section);
    if (!target.matches('button, a')) target.tabIndex = -1;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: target.matches('section, article') ? 'start' : 'center' });
  }

  async askTimes() {
    const { at, streams, asked } = this.bar.ask(this.open());
    if (streams.length === 0) return;
    const answer = await look(at, asked);
    // The status is older than its answer.
    this.ahead = answer.time - Date.now() * 1e6;
    this.bar.show(streams, answer.panels);
  }

  async askLook() {
    const { at } = this.state;
    const panels = [...this.panels.values()].filter((panel) => panel.isVisible && panel.isDue());
    if (panels.length === 0) return;
    const asked = panels.map((panel) => panel.ask(at));
    const answer = await look(at, asked.map((one) => one.asked));
    for (const [i, panel] of panels.entries()) {
      // Not what was asked before the last change.
      if (panel.ask(this.state.at).settings !== asked[i].settings) continue;
      try {
        panel.show(answer.panels[i], asked[i].settings);
      } catch (error) {
        panel.fail(`This page cannot draw the answer: ${error}`);
      }
    }
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }

  /**
   * Asks again and again while the page is seen.
   * @param {string} what
   * @param {() => number} pause ms from one question to the next
   * @param {() => Promise<void>} question
   */
  async repeat(what, pause, question) {
    for (;;) {
      if (document.hidden || this.isLocked) {
        await this.bell.wait(60000);
        continue;
      }
      const began = performance.now();
      await this.attempt(what, question);
      const least = this.failures.has(what) ? STATUS_MS : pause();
      await this.bell.wait(began + least - performance.now());
    }
  }

  run() {
    this.repeat('status', () => STATUS_MS, () => this.askStatus());
    this.repeat('times', () => STATUS_MS, () => this.askTimes());
    this.repeat('look', () => (this.state.at === null ? LOOK_MS : PAST_MS), () => this.askLook());
  }
}

new Page().run();
