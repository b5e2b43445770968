// Events by their time of flight: how many came in each bin in the time up to now.

import { element, flip, setText, windowChoice } from './dom.js';
import { describe, WINDOWS } from './events.js';
import { count, number } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./state.js').Settings} Settings */

/** Height of the plot, px. */
const HEIGHT = 260;

export class SpectrumView {
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
    this.box = element('div', {
      class: 'plot',
      tabindex: 0,
      role: 'application',
      'aria-label': `Spectrum of ${settings.stream}. Arrow keys left and right read values; + and - zoom; 0 shows all.`,
      keydown: (event) => this.key(event),
      dblclick: () => this.show(null),
    });
    this.value = element('output', { 'aria-live': 'off' });
    this.sum = element('p', { class: 'muted' });
    const zoom = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
      element('button', { type: 'button', title, 'aria-label': title, click }, text);
    this.element = element(
      'div',
      {},
      this.box,
      element('p', { class: 'readout' }, this.value),
      element(
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
        windowChoice('last', WINDOWS, settings, 1, changed),
      ),
      this.sum,
    );
  }

  /** @returns {Partial<import('./api.js').Asked>} */
  ask() {
    const { region, window, origin } = this.settings;
    const width = Math.max(50, Math.min(2000, this.box.clientWidth - 60));
    return {
      width,
      window: Math.round((window ?? 1) * 1e9),
      ...(region ? { region } : {}),
      ...(origin ? { origin } : {}),
    };
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    const { x, y } = answer.arrays;
    // ms, and each bin from its lower edge on; the last one ends at the last edge.
    const edges = Array.from(x.values, (edge) => edge / 1e6);
    const counts = Array.from(y.values);
    this.plot ??= this.makePlot();
    const width = this.box.clientWidth;
    if (width > 0 && this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData([edges, [...counts, counts[counts.length - 1] ?? null]], false);
    // Zero has no logarithm: it lies on the axis.
    const most = Math.max(1, ...counts);
    this.plot.setScale('y', this.settings.log ? { min: 0.5, max: most * 2 } : { min: 0, max: most * 1.08 });
    this.plot.setScale('x', { min: edges[0], max: edges[edges.length - 1] });
    setText(this.sum, describe(answer, 'in no bin'));
  }

  /** @returns {uPlot} */
  makePlot() {
    const style = getComputedStyle(document.documentElement);
    const [text, grid, line, band] = ['--text', '--line', '--accent', '--band'].map((name) => style.getPropertyValue(name).trim());
    /** @type {uPlot.Axis} */
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    return new uPlot(
      {
        width: Math.max(200, this.box.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
        scales: { x: { time: false, auto: false }, y: { auto: false, distr: this.settings.log ? 3 : 1, clamp: 0.5 } },
        axes: [
          { ...axis, label: 'time of flight (ms)', labelSize: 20, size: 30 },
          { ...axis, size: 60, values: (_plot, splits) => splits.map((split) => (split === null ? '' : number(split))) },
        ],
        series: [
          {},
          { label: 'events', stroke: line, width: 1, fill: band, points: { show: false }, paths: uPlot.paths.stepped?.({ align: 1 }) },
        ],
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
    const [from, to] = [left, left + width].map((at) => plot.posToVal(at, 'x') * 1e6);
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.show([from, to]);
  }

  /** Shows the events of the bin under the cursor. */
  read() {
    const { plot } = this;
    const left = plot?.cursor.left ?? -1;
    if (!plot || left < 0) {
      setText(this.value, '');
      return;
    }
    const at = plot.posToVal(left, 'x');
    const [edges, counts] = plot.data;
    const above = edges.findIndex((edge) => edge > at);
    if (above < 1) return;
    setText(this.value, `${number(edges[above - 1])} to ${number(edges[above])} ms: ${count(counts[above - 1])} events`);
  }

  /** @param {[number, number] | null} part ns; null: all */
  show(part) {
    const region = part && [Math.max(0, Math.round(part[0])), 0, Math.max(1, Math.round(part[1])), 1];
    if (region && region[2] - region[0] < 10) return;
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
    this.show([(at - (at - min) * factor) * 1e6, (at + (max - at) * factor) * 1e6]);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && this.plot) {
      const width = this.plot.bbox.width / devicePixelRatio;
      const at = this.plot.cursor.left ?? -1;
      const left = Math.min(width - 1, Math.max(0, at < 0 ? width / 2 : at + step * 4));
      this.plot.setCursor({ left, top: this.plot.bbox.height / devicePixelRatio / 2 });
    } else if (event.key === '+' || event.key === '=') {
      this.zoom(0.5);
    } else if (event.key === '-') {
      this.zoom(2);
    } else if (event.key === '0') {
      this.show(null);
    } else {
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
