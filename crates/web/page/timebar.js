// The time bar, which rules all panels: a lane for each stream, with its messages, how late they arrived, what is
// missing, and what was moved aside; runs above them. A click, a drag or a key chooses the moment.

import { choice, element, setText } from './dom.js';
import { count, duration, time } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./api.js').Gap} Gap */
/** @typedef {import('./api.js').Run} Run */
/** @typedef {import('./state.js').State} State */

/** Height of a lane, px. */
const HEIGHT = 26;
/** What of it marks take at the top; bars and the line of lateness have the rest. */
const MARKS = 8;
/** Times that are not known, as the ledger has them. */
const UNKNOWN = 2 ** 63;
/** Gaps in the list. */
const LISTED = 20;
/** Runs to choose from. */
const RUNS = 50;
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
   * @param {() => number[]} alarms when alarms of the panels began, ns
   * @param {() => number} now ns since 1970 UTC
   */
  constructor(place, state, go, changed, alarms, now) {
    this.state = state;
    this.go = go;
    this.changed = changed;
    this.alarms = alarms;
    this.now = now;
    /** End of the bar, ns; null: now. @type {number | null} */
    this.end = null;
    /** What the newest answers show, ns. */
    this.from = 0;
    this.to = 0;
    /** Source time of the newest message of all lanes, ns. @type {number | null} */
    this.latest = null;
    /** @type {Gap[]} */
    this.gaps = [];
    /** @type {Run[]} */
    this.runs = [];
    /** @type {Map<string, Lane>} */
    this.lanes = new Map();
    /** Messages that came behind the seal of their run, by stream. @type {Map<string, number>} */
    this.late = new Map();
    this.isDragged = false;
    this.speed = 0;

    this.marker = element('div', { class: 'marker', hidden: true });
    this.runLane = element('div', { class: 'run-lane' });
    this.rows = element('div', { class: 'lanes' });
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
        pointermove: (event) => this.isDragged && this.pick(event),
        pointerup: () => (this.isDragged = false),
        pointercancel: () => (this.isDragged = false),
      },
      this.runLane,
      this.rows,
      this.marker,
    );
    this.span = choice('time shown', SPANS, String(state.span), (span) => {
      this.state.span = Number(span);
      this.changed();
    });
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
    this.before = button('Previous gap', () => this.goToGap(-1));
    this.after = button('Next gap', () => this.goToGap(1));
    this.ends = element('p', { class: 'muted ends' }, element('span'), element('span'));
    this.list = element('ul');
    this.summary = element('summary');
    this.details = element('details', { hidden: true }, this.summary, this.list);
    place.append(
      this.bar,
      this.ends,
      element(
        'div',
        { class: 'tools' },
        this.span,
        button('Earlier', () => this.shift(-0.5)),
        button('Later', () => this.shift(0.5)),
        this.play,
        this.before,
        this.after,
        button('Next alarm', () => this.goToAlarm()),
        this.runChoice,
      ),
      element(
        'p',
        { class: 'muted' },
        'Bars: messages. Line: how long after their time they arrived. ',
        'Full height with a cross: missing. ▼ moved aside. ▲ arrived behind the seal of their run.',
      ),
      this.details,
    );
    if (state.at !== null) this.cover(state.at);
    setInterval(() => this.tick(), STEP);
  }

  /**
   * What is asked of the server.
   * @param {string[]} streams
   * @returns {{at: number | null, asked: import('./api.js').Asked[]}}
   */
  ask(streams) {
    const width = Math.max(50, Math.min(1000, Math.round(this.bar.clientWidth)));
    const window = Math.round(this.state.span * 1e9);
    return { at: this.end, asked: streams.map((stream) => ({ stream, view: 'times', width, height: 1, window })) };
  }

  /**
   * @param {string[]} streams
   * @param {Answer[]} answers
   */
  show(streams, answers) {
    this.gaps = [];
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
      if (answer.latest !== null) this.latest = Math.max(this.latest ?? answer.latest, answer.latest);
      this.gaps.push(...answer.gaps);
      draw(lane.canvas, answer);
    }
    this.gaps.sort((a, b) => a.from - b.from);
    this.mark();
    this.showRuns(this.runs);
    this.showGaps();
  }

  /**
   * Takes how many messages of a stream came behind the seal of their run.
   * @param {{name: string, late: number}[]} streams
   */
  takeLate(streams) {
    this.late = new Map(streams.map(({ name, late }) => [name, late]));
    this.showLabels();
  }

  /** Says of each lane what it shows, at the moment that is chosen or in all. */
  showLabels() {
    const { at } = this.state;
    for (const [name, { label, canvas, answer }] of this.lanes) {
      const parts = [name];
      if (canvas.hidden) parts.push('▲ cannot be read');
      const late = this.late.get(name) ?? 0;
      if (late > 0) parts.push(`▲ ${count(late)} behind the seal`);
      const all = answer?.arrays.lateness?.values ?? [];
      const isInside = answer && at !== null && at >= answer.from && at <= answer.to;
      if (isInside) {
        let part = Math.min(all.length - 1, Math.floor(((at - answer.from) / (answer.to - answer.from)) * all.length));
        // Of the newest message up to the moment, which the panels show.
        while (part > 0 && Number.isNaN(all[part])) part -= 1;
        if (all[part] > -Infinity) parts.push(`here ${lateness(all[part])}`);
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
    this.before.disabled = this.after.disabled = !this.gaps.some((gap) => isKnown(gap.from));
    this.details.hidden = this.gaps.length === 0;
    setText(this.summary, `Gaps in this time: ${count(this.gaps.length)}`);
    const newest = this.gaps.slice(-LISTED).reverse();
    const texts = newest.map((gap) => {
      const unknown = gap.last < gap.first;
      const numbers = unknown ? 'an unknown number' : gap.first === gap.last ? `number ${gap.first}` : `numbers ${gap.first} to ${gap.last}`;
      const at = isKnown(gap.from) ? time(gap.from) : 'time unknown';
      return `${at}: ${gap.stream}, ${numbers} ${gap.origin && `of ${gap.origin} `}(${gap.reason})`;
    });
    if (String(texts) === this.list.dataset.shown) return;
    this.list.dataset.shown = String(texts);
    this.list.replaceChildren(
      ...newest.map((gap, i) => element('li', {}, isKnown(gap.from) ? element('button', { type: 'button', click: () => this.choose(gap.from) }, texts[i]) : texts[i])),
    );
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
    if (this.to) {
      setText(this.ends.children[0], `${time(this.from)} UTC`);
      setText(this.ends.children[1], this.end === null ? 'now' : `${time(this.to)} UTC`);
    }
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
    const box = this.bar.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    this.choose(this.from + share * (this.to - this.from));
  }

  /** @param {number} at ns */
  choose(at) {
    if (!this.to) return;
    if (at < this.now()) this.go(Math.round(at));
    else this.goNow();
  }

  /** Stands still, where this moment is seen. @param {number} at ns */
  cover(at) {
    const span = this.state.span * 1e9;
    this.end ??= this.to || this.now();
    if (at < this.end - span || at > this.end) this.end = Math.min(this.now(), at + span / 2);
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

  /** @param {number} share of the time that is shown */
  shift(share) {
    const end = (this.end ?? this.to) + share * (this.to - this.from);
    this.end = end >= this.now() ? null : end;
    this.changed();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const span = this.to - this.from;
    const steps = { ArrowLeft: -0.005, ArrowRight: 0.005, ArrowDown: -0.005, ArrowUp: 0.005, PageDown: -0.1, PageUp: 0.1 };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (step) this.choose((this.state.at ?? this.to) + step * span);
    else if (event.key === 'Home') this.choose(this.from);
    else if (event.key === 'End') this.goNow();
    else return;
    event.preventDefault();
  }

  /** @param {-1 | 1} step */
  goToGap(step) {
    const at = this.state.at ?? this.to;
    const known = this.gaps.filter((one) => isKnown(one.from));
    const gap = step > 0 ? known.find((one) => one.from > at) : known.filter((one) => one.from < at).pop();
    if (gap) this.choose(gap.from);
  }

  /** The next alarm that the trends of the page show; after the last one the first. */
  goToAlarm() {
    const at = this.state.at ?? 0;
    const all = this.alarms().sort((a, b) => a - b);
    const next = all.find((from) => from > at) ?? all[0];
    if (next !== undefined) this.choose(next);
  }

  /** @param {string} name */
  goToRun(name) {
    const run = this.runs.find((one) => one.name === name);
    if (!run) return;
    const stop = run.stop ?? this.now();
    const wanted = Math.max(10, ((stop - run.start) / 1e9) * 1.2);
    const fit = SPANS.find(([span]) => Number(span) >= wanted) ?? SPANS[SPANS.length - 1];
    this.state.span = Number(fit[0]);
    const list = this.span.querySelector('select');
    if (list) list.value = fit[0];
    this.end = Math.min(this.now(), run.start + this.state.span * 0.9e9);
    this.go(run.start);
    this.changed();
  }

  /** @param {number} speed 0: stopped */
  setSpeed(speed) {
    this.speed = speed;
    const list = this.play.querySelector('select');
    if (list) list.value = String(speed);
    // Playing begins at the left end of what is seen.
    if (speed > 0 && this.state.at === null) this.choose(this.from);
  }

  tick() {
    if (this.speed === 0 || this.state.at === null || document.hidden) return;
    this.choose(this.state.at + STEP * 1e6 * this.speed);
  }
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
  context.lineWidth = 1;
  context.fillStyle = context.strokeStyle = colour('--bad');
  for (const gap of answer.gaps) {
    if (!isKnown(gap.from)) continue;
    const left = Math.max(0, place(gap.from));
    const right = Math.max(left + 2, Math.min(width, place(gap.to)));
    context.fillRect(left, 0, right - left, HEIGHT);
    context.beginPath();
    context.moveTo(left - 3, 0);
    context.lineTo(left + 5, 6);
    context.moveTo(left + 5, 0);
    context.lineTo(left - 3, 6);
    context.stroke();
  }
  triangles(context, answer.arrays.aside?.values ?? [], colour('--text'), 0, MARKS - 1);
  triangles(context, answer.arrays.late?.values ?? [], colour('--text'), MARKS - 1, 0);
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
