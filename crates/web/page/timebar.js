// The time bar, which rules all panels: a lane for each stream, with its messages, how late they arrived, what is
// missing, and what was moved aside; runs above them. A click, a drag or a key chooses the moment.

import { look } from './api.js';
import { choice, element, setText } from './dom.js';
import { count, duration, estimate, messages, time } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./api.js').Gap} Gap */
/** @typedef {import('./api.js').Run} Run */
/** @typedef {import('./state.js').State} State */
/** @typedef {import('./api.js').Found} Found */

/** Height of a lane, px. */
const HEIGHT = 26;
/** The share of marks at the top; bars and the line of lateness have the rest. */
const MARKS = 8;
/** Times that are not known, as the ledger has them. */
const UNKNOWN = 2 ** 63;
/** Between two crosses of missing messages at least, px. */
const CROSSES = 12;
/** Room for a label of the scale, px. */
const LABEL = 80;
/** A time that the server has not known for this long is marked, ns. */
const UNKNOWN_FOR = 3e9;
/** Streams of one request. */
const MOST = 64;
/** Steps of the scale, s. */
const SCALE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
/** Gaps in the list. */
const LISTED = 20;
/** Runs to choose from. */
const RUNS = 50;
/** A moment is shown up to this much later, ns. */
const ROUNDED = 1024;
/** A step of playing, ms. */
const STEP = 100;

/** @type {[string, string][]} */
const SPANS = [
  ['60', '1 min'],
  ['600', '10 min'],
  ['3600', '1 h'],
  ['86400', '1 d'],
  ['604800', '7 d'],
];

/**
 * @typedef {object} Lane
 * @property {HTMLElement} row
 * @property {HTMLElement} label
 * @property {HTMLCanvasElement} canvas
 * @property {Answer | null} answer the newest without a fault
 */

export class TimeBar {
  /**
   * @param {HTMLElement} place
   * @param {State} state
   * @param {(at: number | null) => void} go shows a moment, ns; null: now
   * @param {() => void} changed another time is shown
   * @param {() => number} now ns since 1970 UTC
   */
  constructor(place, state, go, changed, now) {
    this.state = state;
    this.go = go;
    this.changed = changed;
    this.now = now;
    /** End of the bar, ns; null: now. @type {number | null} */
    this.end = null;
    /** The time that the newest answers show, ns. */
    this.to = now();
    this.from = this.to - state.span * 1e9;
    /** Source time of the oldest message of all lanes, ns. @type {number | null} */
    this.earliest = null;
    /** When the newest message of all lanes arrived, ns. @type {number | null} */
    this.arrived = null;
    /** @type {Gap[]} */
    this.gaps = [];
    /** How many gaps more there are in this time. */
    this.older = 0;
    /** @type {Run[]} */
    this.runs = [];
    /** @type {Map<string, Lane>} */
    this.lanes = new Map();
    /** All streams that are there; how many of their messages came behind the seal of their run. @type {Map<string, number>} */
    this.streams = new Map();
    /** Searches for gaps and alarms so far. */
    this.searches = 0;
    this.isDragged = false;
    /** Where the pointer was last. @type {PointerEvent | null} */
    this.pointer = null;
    /** The moment to which the sentence of a search belongs. @type {number | null} */
    this.foundAt = null;
    this.speed = 0;

    this.marker = element('div', { class: 'marker', hidden: true });
    this.runLane = element('div', { class: 'run-lane' });
    this.rows = element('div');
    this.inner = element('div', { class: 'lanes' }, this.runLane, this.rows, this.marker);
    this.bar = element(
      'div',
      {
        class: 'timebar',
        tabindex: 0,
        role: 'slider',
        'aria-label': 'Moment that all panels show',
        'aria-valuemin': 0,
        'aria-valuemax': 100,
        'aria-valuenow': 100,
        'aria-valuetext': 'now',
        keydown: (event) => this.key(event),
        pointerdown: (event) => this.press(event),
        pointermove: (event) => {
          this.pointer = event;
          if (this.isDragged) this.pick(event);
          this.showPointed();
        },
        pointerleave: () => {
          this.pointer = null;
          this.showPointed();
        },
        pointerup: () => (this.isDragged = false),
        pointercancel: () => (this.isDragged = false),
      },
      this.inner,
    );
    this.span = choice('time shown', SPANS, String(state.span), (span) => {
      this.state.span = Number(span);
      // The moment stays in what is seen.
      if (this.state.at !== null) this.cover(this.state.at);
      this.changed();
    });
    this.setSpan(state.span);
    this.run = element('select', { change: () => this.goToRun(this.run.value) });
    this.runChoice = element('label', { hidden: true }, 'run ', this.run);
    this.play = choice(
      'play',
      [
        ['0', 'stopped'],
        ['1', '1×'],
        ['10', '10×'],
      ],
      '0',
      (speed) => this.setSpeed(Number(speed)),
    );
    const button = (/** @type {string} */ text, /** @type {() => void} */ click) =>
      element('button', { type: 'button', click }, text);
    this.scale = element('div', { class: 'scale-of-times muted', 'aria-hidden': 'true' });
    this.ends = element('p', { class: 'muted ends' }, element('span'), element('span'));
    this.pointed = element('output', { class: 'readout', 'aria-live': 'off' });
    this.found = element('p', { class: 'readout', role: 'status' });
    this.hidden = element('p', { class: 'muted', hidden: true });
    this.list = element('ul');
    this.summary = element('summary');
    this.details = element('details', { hidden: true }, this.summary, this.list);
    place.append(
      this.bar,
      this.scale,
      this.ends,
      this.hidden,
      element('p', { class: 'readout' }, this.pointed),
      element(
        'div',
        { class: 'tools' },
        this.span,
        button('Earlier', () => this.shift(-0.5)),
        button('Later', () => this.shift(0.5)),
        this.play,
        button('Previous gap', () => this.goToNext('gap', -1)),
        button('Next gap', () => this.goToNext('gap', 1)),
        button('Previous alarm', () => this.goToNext('alarm', -1)),
        button('Next alarm', () => this.goToNext('alarm', 1)),
        this.runChoice,
      ),
      this.found,
      element(
        'p',
        { class: 'muted' },
        'Bars: messages. Line: how long after their time they arrived. ',
        'From above, with ✕: the share that is missing; hatched: missing, nobody knows how many; dotted: not known yet. ',
        '▼ moved aside. ▲ arrived behind the seal of their run. Boxes above: runs. Upright line: the moment that is shown.',
      ),
      this.details,
    );
    if (state.at !== null) this.cover(state.at);
    setInterval(() => this.tick(), STEP);
  }

  /**
   * The panels of the request. A stream that was removed keeps its lane, which says so, as long as it has a panel.
   * @param {Set<string>} open streams with a panel, which come first where there is no room for all
   * @returns {{at: number | null, streams: string[], asked: import('./api.js').Asked[]}}
   */
  ask(open) {
    const names = [...new Set([...this.streams.keys(), ...open])];
    const first = names.filter((name) => open.has(name));
    const streams = names.length <= MOST ? names : [...first, ...names.filter((name) => !open.has(name))].slice(0, MOST);
    const width = Math.max(50, Math.min(1000, Math.round(this.inner.clientWidth)));
    const window = Math.round(this.state.span * 1e9);
    return { at: this.end, streams, asked: streams.map((stream) => ({ stream, view: 'times', width, height: 1, window })) };
  }

  /**
   * @param {string[]} streams
   * @param {Answer[]} answers
   */
  show(streams, answers) {
    this.gaps = [];
    this.older = 0;
    for (const [name, lane] of this.lanes) {
      if (streams.includes(name)) continue;
      lane.row.remove();
      this.lanes.delete(name);
    }
    for (const [i, name] of streams.entries()) {
      const answer = answers[i];
      let lane = this.lanes.get(name);
      if (!lane) {
        const canvas = element('canvas', { height: HEIGHT, 'aria-hidden': 'true' });
        const label = element('span', {}, name);
        lane = { row: element('div', { class: 'lane' }, label, canvas), label, canvas, answer: null };
        this.lanes.set(name, lane);
      }
      if (this.rows.children[i] !== lane.row) this.rows.insertBefore(lane.row, this.rows.children[i] ?? null);
      lane.row.title = answer.fault?.cause ?? '';
      // Not what was there before.
      lane.canvas.hidden = Boolean(answer.fault);
      lane.answer = answer.fault ? null : answer;
      if (answer.fault) continue;
      [this.from, this.to] = [answer.from, answer.to];
      if (answer.earliest !== null) this.earliest = Math.min(this.earliest ?? answer.earliest, answer.earliest);
      if (answer.arrived !== null) this.arrived = Math.max(this.arrived ?? answer.arrived, answer.arrived);
      this.gaps.push(...answer.gaps);
      this.older += answer.more;
      draw(lane.canvas, answer);
    }
    this.gaps.sort((a, b) => a.from - b.from);
    const below = this.bar.scrollHeight > this.bar.clientHeight + 1;
    const some = streams.length < this.streams.size ? `${streams.length} of ${count(this.streams.size)} streams have a lane here. ` : '';
    const how = below ? `${streams.length} lanes: scroll in the bar for the others, or press Shift with arrow up or down.` : '';
    this.hidden.hidden = !some && !how;
    setText(this.hidden, some + how);
    this.mark();
    this.showPointed();
    this.showScale();
    this.showRuns(this.runs);
    this.showGaps();
  }

  /**
   * Takes which streams there are, and how many of their messages came behind the seal of their run.
   * @param {{name: string, late: number}[]} streams
   */
  takeStreams(streams) {
    this.streams = new Map(streams.map(({ name, late }) => [name, late]));
    this.showLabels();
  }

  /** Says of each lane what it shows, at the moment that is chosen or in all. */
  showLabels() {
    const { at } = this.state;
    for (const [name, { label, canvas, answer }] of this.lanes) {
      const parts = [name];
      if (canvas.hidden) parts.push('▲ cannot be read');
      const late = this.streams.get(name) ?? 0;
      if (late > 0) parts.push(`▲ ${count(late)} behind the seal`);
      const all = answer?.arrays.lateness?.values ?? [];
      if (answer && at !== null && at >= answer.from && at <= answer.to) {
        const { values } = answer.arrays.counts;
        const moment = partAt(answer, at);
        // Of the newest message up to the moment, which the panels show.
        let part = moment;
        while (part > 0 && values[part] === 0) part -= 1;
        const here = [messages(values[part]), ...missing(answer, moment)];
        if (all[part] > -Infinity) here.push(lateness(all[part]));
        parts.push(`here ${here.join(', ')}`);
      }
      const most = largest(all);
      if (most > -Infinity) parts.push(`at most ${lateness(most)}`);
      setText(label, parts.join(', '));
    }
  }

  /** @param {Run[]} runs oldest first */
  showRuns(runs) {
    this.runs = runs;
    const newest = runs.slice(-RUNS).reverse();
    this.runChoice.hidden = runs.length === 0;
    if (this.run.options.length !== newest.length + 1 || this.run.options[1]?.value !== newest[0]?.name) {
      const options = newest.map((run) => element('option', { value: run.name }, run.name));
      this.run.replaceChildren(element('option', { value: '' }, 'choose'), ...options);
    }
    const inside = newest.filter((run) => run.start < this.to && (run.stop ?? this.to) > this.from).reverse();
    while (this.runLane.children.length > inside.length) this.runLane.lastElementChild?.remove();
    for (const [i, run] of inside.entries()) {
      if (!this.runLane.children[i]) this.runLane.append(element('span'));
      const part = /** @type {HTMLElement} */ (this.runLane.children[i]);
      const [left, right] = [this.share(run.start), this.share(run.stop ?? this.to)];
      part.style.left = `${left * 100}%`;
      part.style.width = `${(right - left) * 100}%`;
      setText(part, run.name);
    }
  }

  showGaps() {
    this.details.hidden = this.gaps.length === 0;
    const listed = Math.min(LISTED, this.gaps.length);
    const all = this.gaps.length + this.older;
    setText(this.summary, `Gaps in this time: ${count(all)}${all > listed ? `; the newest ${listed} are listed` : ''}`);
    const newest = this.gaps.slice(-LISTED).reverse();
    const texts = newest.map((gap) => `${isKnown(gap.from) ? time(gap.from) : 'time unknown'}: ${words(gap.stream, gap)}`);
    if (String(texts) === this.list.dataset.shown) return;
    this.list.dataset.shown = String(texts);
    this.list.replaceChildren(
      ...newest.map((gap, i) => element('li', {}, isKnown(gap.from) ? element('button', { type: 'button', click: () => this.go(gap.from) }, texts[i]) : texts[i])),
    );
  }

  /** Shows times below the bar. */
  showScale() {
    const span = (this.to - this.from) / 1e9;
    const most = Math.max(1, Math.floor(this.inner.clientWidth / LABEL));
    const step = SCALE.find((one) => span / one <= most) ?? SCALE[SCALE.length - 1];
    const [start, end] = step < 60 ? [11, 19] : step < 86400 ? [11, 16] : [5, 10];
    const first = Math.ceil(this.from / 1e9 / step) * step;
    const times = [];
    for (let at = first; at * 1e9 <= this.to; at += step) times.push(at * 1e9);
    while (this.scale.children.length > times.length) this.scale.lastElementChild?.remove();
    for (const [i, at] of times.entries()) {
      if (!this.scale.children[i]) this.scale.append(element('span'));
      const label = /** @type {HTMLElement} */ (this.scale.children[i]);
      label.style.left = `${this.share(at) * 100}%`;
      setText(label, time(at).slice(start, end));
      // The last one would go beyond the bar: it stands before its tick.
      label.classList.toggle('before', (1 - this.share(at)) * this.inner.clientWidth < LABEL / 2);
    }
    this.scale.style.width = `${this.inner.clientWidth}px`;
  }

  /** Says what is under the pointer. */
  showPointed() {
    if (!this.pointer) {
      setText(this.pointed, '');
      return;
    }
    const at = this.under(this.pointer);
    const target = /** @type {Node | null} */ (this.pointer.target);
    const lane = [...this.lanes].find(([, { row }]) => row.contains(target));
    const answer = lane?.[1].answer;
    const parts = [`${time(at)} UTC`];
    if (lane && answer) {
      const { values } = answer.arrays.counts;
      const part = partAt(answer, at);
      parts.push(`${lane[0]}, ${messages(values[part])} in ${duration((answer.to - answer.from) / values.length)}`, ...missing(answer, part));
    }
    setText(this.pointed, parts.join(': '));
  }

  /** The time under the pointer, ns. @param {PointerEvent} event */
  under(event) {
    const box = this.inner.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return this.from + share * (this.to - this.from);
  }

  /** Where a time lies in the bar, 0 to 1. @param {number} at */
  share(at) {
    return Math.min(1, Math.max(0, (at - this.from) / (this.to - this.from || 1)));
  }

  /** Shows the moment. */
  mark() {
    const { at } = this.state;
    this.marker.hidden = at === null || at < this.from || at > this.to;
    if (at !== null) this.marker.style.left = `${this.share(at) * 100}%`;
    this.bar.setAttribute('aria-valuenow', String(Math.round((at === null ? 1 : this.share(at)) * 100)));
    this.bar.setAttribute('aria-valuetext', at === null ? 'now' : `${time(at)} UTC`);
    if (at === null) this.setSpeed(0);
    // The answer belongs to its moment.
    if (at !== this.foundAt) setText(this.found, '');
    setText(this.ends.children[0], `${time(this.from)} UTC`);
    setText(this.ends.children[1], this.end === null ? 'now' : `${time(this.to)} UTC`);
    this.showLabels();
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    this.isDragged = true;
    this.bar.setPointerCapture(event.pointerId);
    this.pick(event);
  }

  /** @param {PointerEvent} event */
  pick(event) {
    this.choose(this.under(event));
  }

  /** @param {number} at ns */
  choose(at) {
    if (at < this.now()) this.go(Math.round(at));
    else this.goNow();
  }

  /** Stands still, where this moment is seen. @param {number} at ns */
  cover(at) {
    const span = this.state.span * 1e9;
    this.end ??= this.to;
    // Our now may be before it: answers come late, or a clock is ahead.
    if (at < this.end - span || at > this.end) this.end = Math.max(at, Math.min(this.now(), at + span / 2));
  }

  /** Follows what is new. */
  follow() {
    this.end = null;
    this.setSpeed(0);
  }

  goNow() {
    this.follow();
    this.go(null);
  }

  /** The right end of the bar, ns, also where its lanes are not answered yet. */
  right() {
    return this.end ?? this.now();
  }

  /** The left end, ns. */
  left() {
    return this.right() - this.state.span * 1e9;
  }

  /** @param {number} share of the time that is shown */
  shift(share) {
    const end = this.right() + share * this.state.span * 1e9;
    this.end = end >= this.now() ? null : end;
    this.changed();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.shiftKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown')) {
      this.bar.scrollBy(0, event.key === 'ArrowUp' ? -HEIGHT : HEIGHT);
      event.preventDefault();
      return;
    }
    const span = this.state.span * 1e9;
    const steps = { ArrowLeft: -0.005, ArrowRight: 0.005, ArrowDown: -0.005, ArrowUp: 0.005, PageDown: -0.1, PageUp: 0.1 };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (step) this.choose((this.state.at ?? this.right()) + step * span);
    else if (event.key === 'Home') this.choose(this.left());
    else if (event.key === 'End') this.goNow();
    else return;
    event.preventDefault();
  }

  /**
   * Goes to the gap or alarm that begins next before or after the moment, in any stream that is there.
   * @param {'gap' | 'alarm'} what
   * @param {-1 | 1} step
   */
  async goToNext(what, step) {
    const search = (this.searches += 1);
    const at = Math.round(this.state.at ?? this.now());
    const where = step > 0 ? 'after' : 'before';
    /** @type {(Found & {stream: string}) | null} */
    let best = null;
    const isNearer = (/** @type {number} */ time_) => !best || step * (time_ - best.from) < 0;
    /** @type {import('./api.js').Asked[]} */
    let open = [...this.streams.keys()].map((stream) => ({ stream, view: what, width: 1, height: 1, step }));
    const faults = [];
    this.say('Searching…');
    try {
      while (open.length > 0) {
        const asked = open.slice(0, MOST);
        open = open.slice(MOST);
        const { panels } = await look(at, asked);
        // Another search has begun.
        if (search !== this.searches) return;
        for (const [i, answer] of panels.entries()) {
          const { stream } = asked[i];
          if (answer.fault) faults.push(stream);
          else if (answer.found && isNearer(answer.found.from)) best = { ...answer.found, stream };
          const isMore = !answer.found && answer.sequence !== undefined && answer.sequence !== null;
          if (isMore && isNearer(answer.reached ?? at)) open.push({ ...asked[i], sequence: answer.sequence });
        }
        const { reached } = panels[0];
        if (open.length > 0 && reached != null) this.say(`Searching… ${time(reached)}`);
      }
    } catch (error) {
      this.say(`▲ ${error instanceof Error ? error.message : error}`);
      return;
    }
    const but = faults.length > 0 ? ` Not searched: ${faults.join(', ')}.` : '';
    const held = step < 0 && this.earliest !== null ? `; they hold messages from ${time(this.earliest)} on` : '';
    if (!best) this.say(`No ${what} of any stream ${where} ${time(at)}${held}.${but}`);
    else {
      // Not `choose`: behind a slow answer, or with data of a clock that is ahead, it may be later than our now.
      this.go(best.from);
      this.say(`${time(best.from)}: ${words(best.stream, best)}.${but}`);
    }
  }

  /** Says something of a search, for as long as the moment stays. @param {string} text */
  say(text) {
    this.foundAt = this.state.at;
    setText(this.found, text);
  }

  /** @param {string} name */
  goToRun(name) {
    const run = this.runs.find((one) => one.name === name);
    if (!run) return;
    const stop = run.stop ?? this.now();
    const length = (stop - run.start) / 1e9;
    this.setSpan(Math.min(1e9, Math.max(1, Number((length * 1.1).toPrecision(2)))));
    this.end = Math.min(this.now(), stop + Math.max(0, this.state.span - length) * 0.5e9);
    // At its end each panel has something: a moment that is rounded up is still in the run.
    this.go(Math.max(run.start, stop - ROUNDED));
    this.changed();
    // The same run can be chosen again.
    this.run.value = '';
  }

  /** @param {number} span s, also one that is not in the list */
  setSpan(span) {
    this.state.span = span;
    const list = this.span.querySelector('select');
    if (!list) return;
    const text = String(span);
    if (![...list.options].some((option) => option.value === text)) list.append(element('option', { value: text }, duration(span * 1e9)));
    list.value = text;
  }

  /** @param {number} speed 0: stopped */
  setSpeed(speed) {
    this.speed = speed;
    const list = this.play.querySelector('select');
    if (list) list.value = String(speed);
    // Playing begins at the left end of what is seen.
    if (speed > 0 && this.state.at === null) this.choose(this.left());
  }

  tick() {
    if (this.speed === 0 || this.state.at === null || document.hidden) return;
    this.choose(this.state.at + STEP * 1e6 * this.speed);
  }
}

/**
 * In which part of a lane a time lies.
 * @param {Answer} answer
 * @param {number} at ns
 */
function partAt({ from, to, arrays }, at) {
  const { length } = arrays.counts.values;
  return Math.max(0, Math.min(length - 1, Math.floor(((at - from) / (to - from)) * length)));
}

/**
 * What is missing in a part of a lane, in words: none where nothing is.
 * @param {Answer} answer
 * @param {number} part
 * @returns {string[]}
 */
function missing({ arrays }, part) {
  const lost = arrays.lost.values[part];
  if (lost === 0) return [];
  return [`${Number.isNaN(lost) ? 'an unknown number' : estimate(lost)} missing`];
}

/**
 * A gap or an alarm in words.
 * @param {string} stream
 * @param {Pick<Found, 'origin' | 'severity' | 'message' | 'first' | 'last' | 'reason'>} one
 */
function words(stream, { origin, severity, message, first = 0, last = 0, reason }) {
  if (severity) return `alarm of ${origin} in ${stream}, ${[severity, message].filter(Boolean).join(', ')}`;
  const numbers = first === last ? `number ${first}` : `numbers ${first} to ${last}`;
  return `${stream}, ${last < first ? 'an unknown number' : numbers} ${origin && `of ${origin} `}(${reason})`;
}

/** @param {number} at ns */
function isKnown(at) {
  return Math.abs(at) < UNKNOWN;
}

/** @param {ArrayLike<number>} values */
function largest(values) {
  let most = -Infinity;
  for (let i = 0; i < values.length; i += 1) if (values[i] > most) most = values[i];
  return most;
}

/** @param {number} ns */
function lateness(ns) {
  return ns < 0 ? `${duration(-ns)} early` : `${duration(ns)} late`;
}

/**
 * Draws a lane.
 * @param {HTMLCanvasElement} canvas
 * @param {Answer} answer
 */
function draw(canvas, answer) {
  const counts = answer.arrays.counts.values;
  const width = counts.length;
  if (canvas.width !== width) canvas.width = width;
  const context = canvas.getContext('2d');
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  context.clearRect(0, 0, width, HEIGHT);
  const most = largest(counts);
  context.fillStyle = colour('--accent');
  for (let i = 0; i < width; i += 1) {
    if (!(counts[i] > 0)) continue;
    const height = Math.max(2, (HEIGHT - MARKS) * Math.min(1, counts[i] / most));
    context.fillRect(i, HEIGHT - height, 1, height);
  }
  drawLine(context, answer.arrays.lateness?.values ?? [], colour('--text'), colour('--card'));
  const place = (/** @type {number} */ at) => ((at - answer.from) / (answer.to - answer.from)) * width;
  const from = place(answer.known_to);
  if (answer.to - answer.known_to > UNKNOWN_FOR && from < width) drawDots(context, Math.max(0, from), width, colour('--muted'));
  drawLoss(context, answer.arrays.lost.values, counts, colour('--bad'));
  triangles(context, answer.arrays.aside?.values ?? [], colour('--text'), 0, MARKS - 1);
  triangles(context, answer.arrays.late?.values ?? [], colour('--text'), MARKS - 1, 0);
}

/**
 * What is missing, from above: as high as its share of what was sent. Hatched where it is not known how much.
 * @param {CanvasRenderingContext2D} context
 * @param {ArrayLike<number>} lost
 * @param {ArrayLike<number>} counts
 * @param {string} colour
 */
function drawLoss(context, lost, counts, colour) {
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = 1;
  let cross = -CROSSES;
  for (let i = 0; i < lost.length; i += 1) {
    const isUnknown = Number.isNaN(lost[i]);
    if (isUnknown) for (let y = (6 - (i % 6)) % 6; y < HEIGHT; y += 6) context.fillRect(i, y, 1, 2);
    else if (lost[i] > 0) context.fillRect(i, 0, 1, Math.max(2, (HEIGHT * lost[i]) / (lost[i] + counts[i])));
    const begins = (isUnknown || lost[i] > 0) && !(i > 0 && (Number.isNaN(lost[i - 1]) || lost[i - 1] > 0));
    if (!begins || i - cross < CROSSES) continue;
    cross = i;
    context.beginPath();
    context.moveTo(i - 4, 0);
    context.lineTo(i + 4, 8);
    context.moveTo(i + 4, 0);
    context.lineTo(i - 4, 8);
    context.lineWidth = 1.5;
    context.stroke();
  }
}

/**
 * Dots where the server has not asked yet what is missing.
 * @param {CanvasRenderingContext2D} context
 * @param {number} from px
 * @param {number} to px
 * @param {string} colour
 */
function drawDots(context, from, to, colour) {
  context.fillStyle = colour;
  for (let x = Math.floor(from); x < to; x += 4) for (let y = 2; y < HEIGHT; y += 4) context.fillRect(x, y, 1, 1);
}

/**
 * The line of lateness, from 0 at the bottom to the largest one of the lane; with a rim, so that it is seen on bars.
 * @param {CanvasRenderingContext2D} context
 * @param {ArrayLike<number>} values ns; NaN where there are no messages
 * @param {string} line
 * @param {string} rim
 */
function drawLine(context, values, line, rim) {
  const most = Math.max(1, largest(values));
  for (const [style, width] of /** @type {const} */ ([[rim, 4], [line, 1.5]])) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    let isNew = true;
    for (let i = 0; i < values.length; i += 1) {
      if (Number.isNaN(values[i])) continue;
      const height = (HEIGHT - MARKS - 2) * Math.max(0, values[i] / most);
      if (isNew) context.moveTo(i, HEIGHT - 1 - height);
      context.lineTo(i + 1, HEIGHT - 1 - height);
      isNew = false;
    }
    context.stroke();
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {ArrayLike<number>} values where there are some
 * @param {string} colour
 * @param {number} base of a triangle, px from the top
 * @param {number} tip
 */
function triangles(context, values, colour, base, tip) {
  context.fillStyle = colour;
  for (let i = 0; i < values.length; i += 1) {
    if (!(values[i] > 0)) continue;
    context.beginPath();
    context.moveTo(i - 4, base);
    context.lineTo(i + 5, base);
    context.lineTo(i + 0.5, tip);
    context.fill();
  }
}
