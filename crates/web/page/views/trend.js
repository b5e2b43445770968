// A trend: the last value, in a band from the least to the greatest of each pixel; below it the values of all origins.

import { side } from '../axes.js';
import { element, heightOf, setText, Table, windowChoice } from '../dom.js';
import { count, number, scaleTexts, time } from '../format.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

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

class TrendView {
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
    /** Origins that have been seen; an answer has not always all of them. @type {Map<string, import('../api.js').Series>} */
    this.origins = new Map();
    /** The head of the row of each origin. @type {Map<string, {cell: HTMLElement, button: HTMLButtonElement, alarms: HTMLElement}>} */
    this.heads = new Map();
    this.box = element('div', {
      class: 'plot',
      tabindex: 0,
      role: 'application',
      'aria-label': `Trend of ${settings.stream}. Arrow keys left and right read values.`,
      keydown: (event) => this.key(event),
    });
    this.title = element('p', { class: 'muted' });
    this.legend = element('p', { class: 'muted', hidden: true }, 'Bars at the top: ▼ alarm, ✕ connection lost; each begins at its sign.');
    this.value = element('output', { 'aria-live': 'off' });
    this.table = new Table(
      `Origins of ${settings.stream}`,
      [
        ['origin', ''],
        ['last value', 'number'],
        ['at (UTC)', ''],
      ],
      17,
    );
    this.more = element('p', { class: 'muted', hidden: true });
    this.search = element('input', { type: 'search', value: settings.search, input: () => this.seek() });
    this.searched = element('p', { class: 'tools', hidden: !settings.search }, element('label', {}, 'Only names with ', this.search));
    this.none = element('p', { hidden: true }, 'No values in this time.');
    this.ended = element('p', { class: 'muted', hidden: true });
    this.element = element(
      'div',
      {},
      this.title,
      this.box,
      this.legend,
      element('p', { class: 'readout' }, this.value),
      element(
        'div',
        { class: 'tools' },
        windowChoice('last', WINDOWS, settings, 60, changed),
      ),
      this.none,
      this.ended,
      this.searched,
      this.table.element,
      this.more,
    );
  }

  /** @returns {Partial<import('../api.js').Asked>} */
  ask() {
    const window = this.settings.window ?? 60;
    const width = Math.max(50, Math.min(2000, this.box.clientWidth - 60));
    return { width, window: Math.round(window * 1e9), ...this.named() };
  }

  /** Which names are asked for: the one that is drawn alone, where it is not among the first. */
  named() {
    const { origin, search } = this.settings;
    if (origin && this.isAlone) return { origin };
    return search ? { search } : {};
  }

  /** Asks for the names that have the text of the field. */
  seek() {
    this.settings.search = this.search.value;
    this.isAlone = false;
    this.origins.clear();
    this.changed();
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    for (const series of answer.series) this.origins.set(series.origin, series);
    const { origin } = this.settings;
    this.drawn = origin ? answer.series.findIndex((series) => series.origin === origin) : 0;
    const arrays = ['min', 'max', 'last'].map((name) => answer.arrays[`${name}${this.drawn}`]?.values);
    // An origin that is not among the first, or not among those that are searched for, must be asked for.
    if (arrays[2] === undefined && origin && (answer.more > 0 || this.settings.search)) this.isAlone = true;
    const [min, max, last] = arrays;
    if (last) this.drawPlot(answer, min, max, last);
    else this.close();
    this.showOrigins(answer);
  }

  /**
   * @param {Answer} answer
   * @param {import('../api.js').Numbers} min
   * @param {import('../api.js').Numbers} max
   * @param {import('../api.js').Numbers} last
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
    const { before } = answer.series[this.drawn];
    /** @type {number | null} */
    let held = typeof before === 'number' ? before : null;
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
    const height = heightOf(this.box, HEIGHT);
    if (width > 0 && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
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
        height: heightOf(this.box, HEIGHT),
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { time: true, auto: false }, y: { range: (_plot, low, high) => margin(low, high) } },
        axes: [
          { ...axis, values: '{HH}:{mm}:{ss}', space: 70, size: 30 },
          { ...axis, size: side, values: (_plot, splits) => scaleTexts(splits) },
        ],
        series: [
          {},
          { ...edge, label: 'least' },
          { ...edge, label: 'greatest' },
          { label: 'last', stroke: line, width: 1.5, points: { show: false }, paths: stepped },
        ],
        bands: [{ series: [2, 1], fill: band }],
        hooks: { setCursor: [() => this.read()], setData: [() => this.read()], draw: [(plot) => this.mark(plot)] },
      },
      undefined,
      this.box,
    );
  }

  /** Marks when alarms of the series held, and when its connection was lost. @param {uPlot} plot */
  mark(plot) {
    const series = this.answer?.series[this.drawn];
    const context = plot.ctx;
    const { left, top, width } = plot.bbox;
    const unit = devicePixelRatio;
    const place = (/** @type {number} */ at) => Math.min(left + width, Math.max(left, plot.valToPos(at / 1e9, 'x', true)));
    context.save();
    context.fillStyle = context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--bad').trim();
    context.lineWidth = 2 * unit;
    for (const alarm of series?.alarms ?? []) {
      const [from, to] = [place(alarm.from), place(alarm.to ?? Infinity)];
      context.fillRect(from, top, to - from, 3 * unit);
      context.beginPath();
      context.moveTo(from - 6 * unit, top);
      context.lineTo(from + 6 * unit, top);
      context.lineTo(from, top + 12 * unit);
      context.fill();
    }
    for (const loss of series?.lost ?? []) {
      const [from, to, size] = [place(loss.from), place(loss.to ?? Infinity), 5 * unit];
      context.fillRect(from, top + 14 * unit, to - from, 3 * unit);
      context.beginPath();
      context.moveTo(from - size, top + 14 * unit - size);
      context.lineTo(from + size, top + 14 * unit + size);
      context.moveTo(from + size, top + 14 * unit - size);
      context.lineTo(from - size, top + 14 * unit + size);
      context.stroke();
    }
    context.restore();
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
    const drawn = answer.series[this.drawn];
    this.legend.hidden = !drawn || all(drawn).length === 0;
    const rows = [...this.origins.values()].map((series) => {
      const { cell, button, alarms } = this.head(series.origin);
      button.setAttribute('aria-pressed', String(series.origin === shown));
      const there = fresh.has(series.origin);
      const text = there ? newest(series) : '';
      alarms.hidden = text === '';
      setText(alarms, text);
      alarms.classList.toggle('bad', there && isAlarmed(series));
      return {
        key: series.origin,
        cells: [
          cell,
          there ? `${number(series.last)} ${series.unit ?? ''}`.trim() : '-',
          there && series.last_time != null ? when(series.last_time, answer.to) : '-',
        ],
      };
    });
    this.none.hidden = answer.series.some((series) => series.count > 0);
    this.ended.hidden = answer.until == null || answer.until >= answer.to;
    setText(this.ended, `Nobody writes this stream; its newest message is of ${time(answer.until ?? 0)}.`);
    this.table.element.hidden = rows.length === 0;
    this.table.show(rows);
    this.more.hidden = !answer.more;
    setText(this.more, `${count(answer.more)} more origins: write a part of their name above.`);
    if (answer.more > 0) this.searched.hidden = false;
  }

  /** The head of a row: the name, which chooses what is drawn, and the newest alarm. @param {string} origin */
  head(origin) {
    let head = this.heads.get(origin);
    if (!head) {
      const button = element('button', { type: 'button', click: () => this.choose(origin) }, ...broken(origin || '(none)'));
      const alarms = element('p', { hidden: true });
      head = { cell: element('div', {}, button, alarms), button, alarms };
      this.heads.set(origin, head);
    }
    return head;
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

/** A time of day; of another day than `now` with its date. @param {number} at @param {number} now */
function when(at, now) {
  const text = time(at);
  return text.slice(0, 10) === time(now).slice(0, 10) ? text.slice(11, 19) : text.slice(0, 19);
}

/** Alarms of a series and losses of its connection, in their order. @param {import('../api.js').Series} series */
function all(series) {
  return [...(series.alarms ?? []), ...(series.lost ?? [])].sort((a, b) => a.from - b.from);
}

/** Whether an alarm of a series lasts. @param {import('../api.js').Series} series */
function isAlarmed(series) {
  return all(series).some((alarm) => alarm.to === null);
}

/**
 * The newest alarm of a series, and how many there are.
 * @param {import('../api.js').Series} series
 * @returns {string} empty without one
 */
function newest(series) {
  const alarms = all(series);
  const last = alarms[alarms.length - 1];
  if (!last) return '';
  const words = [last.severity ?? last.status ?? '', last.message ?? ''].filter(Boolean).join(', ');
  const clock = (/** @type {number} */ at) => time(at).slice(11, 21);
  const when = last.to === null ? `▲ ${words} since ${clock(last.from)}` : `${words} from ${clock(last.from)} to ${clock(last.to)}`;
  return alarms.length > 1 ? `${when}, ${count(alarms.length)} alarms in all` : when;
}

/** A part of the names that are listed. @type {import('../state.js').Setting} */
const search = { key: 'search', usual: '', read: decode, write: encodeURIComponent };

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

export default { word: 'trend', View: TrendView, settings: [search] };
