// A trend: the last value, in a band from the least to the greatest of each pixel; below it the values of all origins.

import { element, setText, Table, windowChoice } from './dom.js';
import { count, number, time } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./state.js').Settings} Settings */

/** Height of the plot, px. */
const HEIGHT = 220;

/** @type {[string, string][]} */
const WINDOWS = [
  ['10', '10 s'],
  ['60', '1 min'],
  ['600', '10 min'],
  ['3600', '1 h'],
  ['86400', '1 d'],
];

export class TrendView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.changed = changed;
    /** @type {uPlot | null} */
    this.plot = null;
    /** @type {Answer | null} */
    this.answer = null;
    /** Which series is drawn. */
    this.drawn = 0;
    /** Only the origin that is chosen is asked for. */
    this.isAlone = false;
    /** Origins that have been seen; an answer has not always all of them. @type {Map<string, import('./api.js').Series>} */
    this.origins = new Map();
    /** @type {Map<string, HTMLButtonElement>} */
    this.buttons = new Map();
    this.box = element('div', {
      class: 'plot',
      tabindex: 0,
      role: 'application',
      'aria-label': `Trend of ${settings.stream}. Arrow keys left and right read values.`,
      keydown: (event) => this.key(event),
    });
    this.title = element('p', { class: 'muted' });
    this.value = element('output', { 'aria-live': 'off' });
    this.table = new Table(
      `Origins of ${settings.stream}`,
      [
        ['origin', ''],
        ['last value', 'number'],
        ['at (UTC)', ''],
        ['alarms', ''],
      ],
      17,
    );
    this.more = element('p', { class: 'muted', hidden: true });
    this.none = element('p', { hidden: true }, 'No values in this time.');
    this.ended = element('p', { class: 'muted', hidden: true });
    this.element = element(
      'div',
      {},
      this.title,
      this.box,
      element('p', { class: 'readout' }, this.value),
      element(
        'div',
        { class: 'tools' },
        windowChoice('last', WINDOWS, settings, 60, changed),
      ),
      this.none,
      this.ended,
      this.table.element,
      this.more,
    );
  }

  /** @returns {Partial<import('./api.js').Asked>} */
  ask() {
    const { origin } = this.settings;
    const window = this.settings.window ?? 60;
    const width = Math.max(50, Math.min(2000, this.box.clientWidth - 60));
    return { width, window: Math.round(window * 1e9), ...(origin && this.isAlone ? { origin } : {}) };
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    for (const series of answer.series) this.origins.set(series.origin, series);
    const { origin } = this.settings;
    this.drawn = origin ? answer.series.findIndex((series) => series.origin === origin) : 0;
    const arrays = ['min', 'max', 'last'].map((name) => answer.arrays[`${name}${this.drawn}`]?.values);
    // An origin that is not among the first must be asked for.
    if (arrays[2] === undefined && answer.more > 0) this.isAlone = true;
    const [min, max, last] = arrays;
    if (last) this.drawPlot(answer, min, max, last);
    else this.close();
    this.showOrigins(answer);
  }

  /**
   * @param {Answer} answer
   * @param {import('./api.js').Numbers} min
   * @param {import('./api.js').Numbers} max
   * @param {import('./api.js').Numbers} last
   */
  drawPlot(answer, min, max, last) {
    const length = last.length;
    const step = (answer.to - answer.from) / length / 1e9;
    /** @type {number[]} */
    const times = Array(length);
    /** @type {[(number | null)[], (number | null)[], (number | null)[]]} */
    const lines = [Array(length), Array(length), Array(length)];
    // A value holds until the next one comes, as long as its stream is written.
    const until = (answer.until ?? answer.to) / 1e9;
    /** @type {number | null} */
    let held = null;
    for (let i = 0; i < length; i += 1) {
      times[i] = answer.from / 1e9 + (i + 1) * step;
      const present = !Number.isNaN(last[i]);
      if (present) held = last[i];
      else if (times[i] - step > until) held = null;
      lines[0][i] = present ? min[i] : held;
      lines[1][i] = present ? max[i] : held;
      lines[2][i] = held;
    }
    this.plot ??= this.makePlot();
    const width = this.box.clientWidth;
    if (width > 0 && this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData([times, ...lines], false);
    this.plot.setScale('x', { min: answer.from / 1e9, max: answer.to / 1e9 });
  }

  /** @returns {uPlot} */
  makePlot() {
    const style = getComputedStyle(document.documentElement);
    const [text, grid, line, band] = ['--text', '--line', '--accent', '--band'].map((name) => style.getPropertyValue(name).trim());
    const stepped = uPlot.paths.stepped?.({ align: -1 });
    /** @type {uPlot.Axis} */
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    /** @type {uPlot.Series} */
    const edge = { stroke: 'transparent', width: 0, points: { show: false }, paths: stepped };
    return new uPlot(
      {
        width: Math.max(200, this.box.clientWidth),
        height: HEIGHT,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { time: true, auto: false }, y: { range: (_plot, low, high) => margin(low, high) } },
        axes: [
          { ...axis, values: '{HH}:{mm}:{ss}', space: 70, size: 30 },
          { ...axis, size: 60, values: (_plot, splits) => splits.map(number) },
        ],
        series: [
          {},
          { ...edge, label: 'least' },
          { ...edge, label: 'greatest' },
          { label: 'last', stroke: line, width: 1.5, points: { show: false }, paths: stepped },
        ],
        bands: [{ series: [2, 1], fill: band }],
        hooks: { setCursor: [() => this.read()], setData: [() => this.read()] },
      },
      undefined,
      this.box,
    );
  }

  /** Shows the values under the cursor. */
  read() {
    const index = this.plot?.cursor.idx;
    if (!this.plot || index == null || this.plot.data[0].length <= index) {
      setText(this.value, '');
      return;
    }
    const [at, least, greatest, last] = this.plot.data.map((line) => line[index]);
    const band = least === greatest ? '' : ` (${number(least)} to ${number(greatest)})`;
    const unit = this.answer?.series[this.drawn]?.unit ?? '';
    const value = last == null ? 'no value' : `${number(last)} ${unit}${band}`;
    setText(this.value, `${time(Number(at) * 1e9)}: ${value}`);
  }

  /** @param {Answer} answer */
  showOrigins(answer) {
    const shown = answer.series[this.drawn]?.origin;
    const unit = answer.series[this.drawn]?.unit;
    setText(this.title, shown ? `${shown}${unit ? ` (${unit})` : ''}` : '');
    const fresh = new Set(answer.series.map((series) => series.origin));
    const rows = [...this.origins.values()].map((series) => {
      let button = this.buttons.get(series.origin);
      if (!button) {
        button = element('button', { type: 'button', click: () => this.choose(series.origin) }, ...broken(series.origin || '(none)'));
        this.buttons.set(series.origin, button);
      }
      button.setAttribute('aria-pressed', String(series.origin === shown));
      const there = fresh.has(series.origin);
      return {
        key: series.origin,
        cells: [
          button,
          there ? `${number(series.last)} ${series.unit ?? ''}`.trim() : '-',
          there && series.last_time != null ? time(series.last_time).slice(11, 19) : '-',
          there ? alarms(series) : '-',
        ],
        bad: [false, false, false, there && isAlarmed(series)],
      };
    });
    this.none.hidden = answer.series.length > 0;
    this.ended.hidden = answer.until == null || answer.until >= answer.to;
    setText(this.ended, `Nobody writes this stream; its newest message is of ${time(answer.until ?? 0)}.`);
    this.table.element.hidden = rows.length === 0;
    this.table.show(rows);
    this.more.hidden = !answer.more;
    setText(this.more, `${count(answer.more)} more origins.`);
  }

  /** @param {string} origin the one that is drawn */
  choose(origin) {
    this.settings.origin = origin;
    this.isAlone = false;
    this.changed();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.plot) return;
    event.preventDefault();
    const { width, height } = this.plot.bbox;
    const right = width / devicePixelRatio;
    const at = this.plot.cursor.left ?? -1;
    const left = Math.min(right - 1, Math.max(0, at < 0 ? right - 1 : at + step * 4));
    this.plot.setCursor({ left, top: height / devicePixelRatio / 2 });
  }

  /** When alarms began, ns. @returns {number[]} */
  alarms() {
    const series = this.answer?.series ?? [];
    return series.flatMap((one) => [...(one.alarms ?? []), ...(one.lost ?? [])].map((alarm) => alarm.from));
  }

  /** Before the next pixel nothing new is to be seen. */
  pause() {
    const pixel = ((this.settings.window ?? 60) * 1e3) / Math.max(1, this.plot?.data[0].length ?? 1);
    return Math.min(1000, pixel);
  }

  /** Draws anew, in the colours that hold now. */
  theme() {
    this.close();
    if (this.answer) this.draw(this.answer);
  }

  close() {
    this.plot?.destroy();
    this.plot = null;
  }
}

/**
 * A name that breaks between its parts where it is too long for one line.
 * @param {string} name
 * @returns {(Node | string)[]}
 */
function broken(name) {
  return name.split(/(?<=[:._/-])/).flatMap((part, i) => (i > 0 ? [element('wbr'), part] : [part]));
}

/**
 * Range of the axis: a constant value lies in its middle.
 * @param {number | null} low
 * @param {number | null} high
 * @returns {[number, number]}
 */
function margin(low, high) {
  if (low == null || high == null) return [0, 1];
  const room = high > low ? (high - low) * 0.08 : Math.abs(low) * 0.01 || 1;
  return [low - room, high + room];
}

/** Alarms of a series that last. @param {import('./api.js').Series} series */
function isAlarmed(series) {
  return [...(series.alarms ?? []), ...(series.lost ?? [])].some((alarm) => alarm.to === null);
}

/**
 * The newest alarm of a series, and how many there are.
 * @param {import('./api.js').Series} series
 * @returns {string}
 */
function alarms(series) {
  const all = [...(series.alarms ?? []), ...(series.lost ?? [])].sort((a, b) => a.from - b.from);
  const newest = all[all.length - 1];
  if (!newest) return '-';
  const words = [newest.severity ?? newest.status ?? '', newest.message ?? ''].filter(Boolean).join(', ');
  const until = newest.to === null ? 'since' : 'at';
  return `${words} ${until} ${time(newest.from).slice(11, 21)}${all.length > 1 ? `, ${count(all.length)} in all` : ''}`;
}
