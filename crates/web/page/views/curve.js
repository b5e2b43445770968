// A curve: an array over its axis, with errors.

import { side, titled } from '../axes.js';
import { element, flip, heightOf, setText, zoomByKey } from '../dom.js';
import { number, scaleTexts } from '../format.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

/** Height of the plot, px. */
const HEIGHT = 260;

export class CurveView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.changed = changed;
    /** @type {uPlot | null} */
    this.plot = null;
    /** What the plot was made for: other axes need another one. */
    this.made = '';
    /** @type {Answer | null} */
    this.answer = null;
    this.box = element('div', {
      class: 'plot',
      tabindex: 0,
      role: 'application',
      'aria-label': `Curve of ${settings.stream}. Arrow keys left and right read values; + and - zoom; 0 shows all.`,
      keydown: (event) => this.key(event),
      dblclick: () => this.show(null),
    });
    this.value = element('output', { 'aria-live': 'off' });
    this.sum = element('p', { class: 'muted' });
    const zoom = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
      element('button', { type: 'button', title, 'aria-label': title, click }, text);
    this.tools = element(
      'div',
      { class: 'tools' },
      zoom('+', 'Zoom in', () => this.zoom(0.5)),
      zoom('−', 'Zoom out', () => this.zoom(2)),
      zoom('All', 'Show all', () => this.show(null)),
      flip('log', settings.log, (on) => {
        this.settings.log = on;
        this.theme();
        this.changed();
      }),
    );
    this.element = element('div', {}, this.box, element('p', { class: 'readout' }, this.value), this.tools, this.sum);
  }

  /** Times of flight are long in ns. */
  get isLong() {
    const x = this.answer?.arrays.x.values;
    return Boolean(x && this.answer?.axis.unit === 'ns' && Math.abs(x[x.length - 1]) >= 1e5);
  }

  /** Factor of the axis: ns are ms. */
  get factor() {
    return this.isLong ? 1e-6 : 1;
  }

  /** Unit of the axis, as it is shown. @returns {string | null} */
  get unit() {
    return this.isLong ? 'ms' : (this.answer?.axis.unit ?? null);
  }

  /** @param {Answer} answer @returns {string} */
  title(answer) {
    return titled({ ...answer.axis, unit: this.unit });
  }

  /** @param {Answer} answer @returns {string} */
  caption(answer) {
    return titled(answer);
  }

  /** @returns {Partial<import('../api.js').Asked>} */
  ask() {
    const { region, origin } = this.settings;
    const width = Math.max(50, Math.min(2000, this.box.clientWidth - 60));
    return { width, ...(region ? { region } : {}), ...(origin ? { origin } : {}) };
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    const { x, y, errors } = answer.arrays;
    const { edges } = answer.axis;
    const places = Array.from(x.values, (place) => place * this.factor);
    // Each bin goes from its lower edge on; the last one ends at the last edge.
    const line = (/** @type {(i: number) => number} */ of) => {
      const values = Array.from(y.values, (_value, i) => of(i));
      return edges ? [...values, values[values.length - 1]] : values;
    };
    const error = (/** @type {number} */ i) => errors?.values[i] ?? 0;
    const data = [line((i) => y.values[i]), line((i) => y.values[i] - error(i)), line((i) => y.values[i] + error(i))];
    const made = `${this.title(answer)} ${edges} ${this.settings.log}`;
    if (made !== this.made) this.close();
    this.made = made;
    this.plot ??= this.makePlot(answer);
    const width = this.box.clientWidth;
    const height = heightOf(this.box, HEIGHT);
    if (width > 0 && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
    const { log } = this.settings;
    // A value without a logarithm is not drawn.
    const shown = data.map((values) => values.map((value) => (Number.isNaN(value) || (log && value <= 0) ? null : value)));
    this.plot.setData([places, ...shown], false);
    this.plot.setScale('y', range(shown.flat(), log));
    this.plot.setScale('x', { min: places[0], max: places[places.length - 1] });
    setText(this.sum, this.caption(answer));
  }

  /** @param {Answer} answer @returns {uPlot} */
  makePlot(answer) {
    const style = getComputedStyle(document.documentElement);
    const names = ['--text', '--line', '--accent', '--band'];
    const [text, grid, line, band] = names.map((name) => style.getPropertyValue(name).trim());
    /** @type {uPlot.Axis} */
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const paths = answer.axis.edges ? uPlot.paths.stepped?.({ align: 1 }) : uPlot.paths.linear?.();
    /** @type {uPlot.Series} */
    const edge = { stroke: 'transparent', width: 0, points: { show: false }, paths };
    return new uPlot(
      {
        width: Math.max(200, this.box.clientWidth),
        height: heightOf(this.box, HEIGHT),
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
        scales: { x: { time: false, auto: false }, y: { auto: false, distr: this.settings.log ? 3 : 1 } },
        axes: [
          {
            ...axis,
            label: this.title(answer),
            labelSize: 20,
            size: 30,
            space: 70,
            values: (_plot, splits) => scaleTexts(splits),
          },
          { ...axis, size: side, values: (_plot, splits) => scaleTexts(splits) },
        ],
        series: [
          {},
          { label: 'values', stroke: line, width: 1.5, points: { show: false }, paths },
          { ...edge, label: 'less the error' },
          { ...edge, label: 'plus the error' },
        ],
        bands: [{ series: [3, 2], fill: band }],
        hooks: {
          setCursor: [() => this.read()],
          setData: [() => this.read()],
          setSelect: [(plot) => this.select(plot)],
        },
      },
      undefined,
      this.box,
    );
  }

  /** Shows the part that was chosen with the mouse. @param {uPlot} plot */
  select(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    const part = /** @type {[number, number]} */ ([left, left + width].map((at) => plot.posToVal(at, 'x')));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.show(part);
  }

  /** The value that a place of the axis belongs to. @param {number} at */
  index(at) {
    const places = this.plot?.data[0] ?? [];
    const above = places.findIndex((place) => place > at);
    const below = above < 0 ? places.length - 1 : above - 1;
    if (this.answer?.axis.edges || above <= 0) return Math.max(0, below);
    return at - places[below] < places[above] - at ? below : above;
  }

  /** Shows the value under the cursor. */
  read() {
    const left = this.plot?.cursor.left ?? -1;
    if (!this.plot || !this.answer || left < 0) {
      setText(this.value, '');
      return;
    }
    const i = this.index(this.plot.posToVal(left, 'x'));
    const { y, errors } = this.answer.arrays;
    const error = errors ? ` ± ${number(errors.values[i])}` : '';
    const unit = this.answer.unit ? ` ${this.answer.unit}` : '';
    setText(this.value, `${this.placed(i)}: ${number(y.values[i])}${error}${unit}`);
  }

  /** Where a value is on the axis. @param {number} i */
  placed(i) {
    const place = (/** @type {number} */ at) => number((this.answer?.arrays.x.values[at] ?? NaN) * this.factor);
    const to = this.answer?.axis.edges ? ` to ${place(i + 1)}` : '';
    return `${place(i)}${to}${this.unit ? ` ${this.unit}` : ''}`;
  }

  /**
   * The part of the answer between two places of the axis.
   * @param {[number, number]} part
   * @returns {number[]}
   */
  part([from, to]) {
    const [x0, , x1] = this.answer?.region ?? [0, 0, 1, 1];
    const shown = this.answer?.arrays.y.values.length ?? 1;
    const of = (/** @type {number} */ i) => Math.round(x0 + (i * (x1 - x0)) / shown);
    const [first, last] = [of(this.index(from)), of(this.index(to) + 1)];
    const { min, max } = this.plot?.scales.x ?? {};
    // What lies outside has no places yet: zooming out shows twice as many values.
    const room = min != null && max != null && to - from > max - min ? Math.ceil((x1 - x0) / 2) : 0;
    const whole = this.answer?.shape?.[0] ?? x1;
    return [Math.max(0, first - room), 0, Math.min(whole, Math.max(first + 1, last + room)), 1];
  }

  /** @param {[number, number] | null} places of the axis; null: all */
  show(places) {
    let region = places && this.part(places);
    if (region && region[0] === 0 && region[2] === this.answer?.shape?.[0]) region = null;
    if (String(region) === String(this.settings.region)) return;
    this.settings.region = region;
    this.changed();
  }

  /** @param {number} factor of the length */
  zoom(factor) {
    if (!this.plot) return;
    const { min, max } = this.plot.scales.x;
    if (min == null || max == null) return;
    const left = this.plot.cursor.left ?? -1;
    const at = left < 0 ? (min + max) / 2 : this.plot.posToVal(left, 'x');
    this.show([at - (at - min) * factor, at + (max - at) * factor]);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && this.plot) {
      const width = this.plot.bbox.width / devicePixelRatio;
      const at = this.plot.cursor.left ?? -1;
      const left = Math.min(width - 1, Math.max(0, at < 0 ? width / 2 : at + step * 4));
      this.plot.setCursor({ left, top: this.plot.bbox.height / devicePixelRatio / 2 });
    } else if (!zoomByKey(event, this)) {
      return;
    }
    event.preventDefault();
  }

  /** Each message changes it. */
  pause() {
    return 0;
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
 * Range of the values.
 * @param {(number | null)[]} values
 * @param {boolean} log
 * @returns {{min: number, max: number}}
 */
function range(values, log) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return log ? { min: 0.1, max: 1 } : { min: 0, max: 1 };
  if (log) return { min: low / 2, max: high * 2 };
  const room = (high - low) * 0.08 || Math.abs(high) * 0.08 || 1;
  // Counts begin at zero.
  return { min: low >= 0 ? 0 : low - room, max: high + room };
}

export default { word: 'curve', View: CurveView };
