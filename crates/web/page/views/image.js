// An image: colours, axes, zoom to single pixels, value under the cursor.
//
// The server reduces the part of the image that is shown to the pixels of the panel; zooming asks for another part.

import { Axes, placed } from '../axes.js';
import { choice, element, flip, setText, zoomByKey } from '../dom.js';
import { count, number } from '../format.js';
import { NAMES, palette } from '../palette.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../api.js').Numbers} Numbers */
/** @typedef {import('../state.js').Settings} Settings */

/** Values that percentiles are taken from, at most. */
const SAMPLES = 16384;
/** Pixels of the image that a zoom shows at least, along each side. */
const CLOSEST = 4;
/** Pixels that are asked for, at most. */
const LARGEST = 1024;
/** A picture is stretched where its sides differ by more than this. */
const STRETCH = 4;

export class ImageView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.changed = changed;
    /** @type {Answer | null} */
    this.answer = null;
    /** Where the cursor is, in pixels of the image. @type {[number, number] | null} */
    this.cursor = null;
    /** Where a drag began, in shares of the canvas. @type {[number, number] | null} */
    this.dragged = null;
    this.canvas = element('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-label': `Image of ${settings.stream}. Arrow keys move the cursor, with Shift the picture; + and - zoom; 0 shows all.`,
      pointerdown: (event) => this.press(event),
      pointermove: (event) => this.move(event),
      pointerup: (event) => this.release(event),
      pointercancel: () => this.choose(null),
      pointerleave: () => this.point(null),
      dblclick: () => this.show(null),
      wheel: (event) => this.wheel(event),
      keydown: (event) => this.key(event),
    });
    const context = this.canvas.getContext('2d');
    if (!context) throw new Error('this browser has no canvas');
    this.context = context;
    this.mark = element('div', { class: 'cross', hidden: true });
    this.chosen = element('div', { class: 'chosen', hidden: true });
    this.box = element('div', { class: 'picture' }, this.canvas, this.mark, this.chosen);
    this.axes = new Axes(this.box);
    this.low = element('span');
    this.high = element('span');
    this.bar = element('canvas', { width: 256, height: 1, 'aria-hidden': 'true' });
    this.value = element('output', { 'aria-live': 'off' });
    this.part = element('span', { class: 'muted' });
    const zoom = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
      element('button', { type: 'button', title, 'aria-label': title, click }, text);
    this.from = this.field('low');
    this.to = this.field('high');
    this.hand = element('span', { hidden: settings.low === null && settings.high === null }, this.from, ' ', this.to);
    this.tools = element(
      'div',
      { class: 'tools' },
      zoom('+', 'Zoom in', () => this.zoom(0.5)),
      zoom('−', 'Zoom out', () => this.zoom(2)),
      zoom('All', 'Show all', () => this.show(null)),
      flip('log', settings.log, (on) => this.set({ log: on })),
      choice(
        'colours',
        [
          ['0', 'min to max'],
          ['0.1', '0.1 to 99.9 %'],
          ['0.5', '0.5 to 99.5 %'],
          ['2', '2 to 98 %'],
          ['hand', 'by hand'],
        ],
        settings.low !== null || settings.high !== null ? 'hand' : settings.cut,
        (cut) => this.limit(cut),
      ),
      this.hand,
      choice('map', NAMES, settings.map, (map) => this.set({ map })),
      choice(
        'pixel',
        [
          ['mean', 'mean'],
          ['max', 'max'],
        ],
        settings.reduce,
        (reduce) => this.set({ reduce }),
      ),
    );
    this.element = element(
      'div',
      {},
      this.axes.element,
      element('div', { class: 'scale' }, this.low, this.bar, this.high),
      element('p', { class: 'readout' }, this.value, ' ', this.part),
      this.tools,
    );
  }

  /** @returns {Partial<import('../api.js').Asked>} */
  ask() {
    const { region, reduce } = this.settings;
    const side = Math.max(16, Math.min(LARGEST, Math.round(this.box.clientWidth * devicePixelRatio)));
    return { width: side, height: side, reduce, ...(region ? { region } : {}) };
  }

  /** The field of an end of the colours. @param {'low' | 'high'} end */
  field(end) {
    const value = this.settings[end] ?? '';
    const input = element('input', { type: 'number', step: 'any', value, change: () => this.set({ [end]: numberOf(input.value) }) });
    return element('label', {}, `${end} `, input);
  }

  /** Colours by a percentage, or by hand, beginning with what is shown. @param {string} cut */
  limit(cut) {
    const isByHand = cut === 'hand';
    const [low, high] = isByHand ? this.ends() : [null, null];
    this.hand.hidden = !isByHand;
    for (const [label, value] of /** @type {const} */ ([[this.from, low], [this.to, high]])) {
      const input = label.querySelector('input');
      if (input) input.value = value === null ? '' : String(value);
    }
    this.set({ low, high, ...(isByHand ? {} : { cut }) });
  }

  /** Ends of the colours of what is shown: those by hand rule. @returns {[number, number]} */
  ends() {
    const [low, high] = this.answer ? limits(this.answer.arrays.values.values, Number(this.settings.cut)) : [0, 1];
    return [this.settings.low ?? low, this.settings.high ?? high];
  }

  /** @param {Partial<Settings>} values */
  set(values) {
    Object.assign(this.settings, values);
    this.paint();
    this.changed();
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    const [x0, y0, x1, y1] = answer.region;
    const [rows, columns] = answer.shape;
    const ratio = Math.min(STRETCH, Math.max(1 / STRETCH, (x1 - x0) / (y1 - y0)));
    this.box.style.aspectRatio = String(ratio);
    this.axes.show(answer, ratio);
    const whole = x0 === 0 && y0 === 0 && x1 === columns && y1 === rows;
    const part = whole ? '' : `, columns ${x0} to ${x1 - 1}, rows ${y0} to ${y1 - 1}`;
    const planes = answer.planes ? `, plane 1 of ${count(answer.planes)}` : '';
    setText(this.part, `${columns} × ${rows}${planes}${part}`);
    this.paint();
    this.read();
  }

  /** Draws the values of the newest answer with the present settings. */
  paint() {
    if (!this.answer) return;
    const { shape, values } = this.answer.arrays.values;
    const [rows, columns] = shape;
    const { canvas, context } = this;
    if (canvas.width !== columns || canvas.height !== rows) {
      canvas.width = columns;
      canvas.height = rows;
    }
    let [low, high] = this.ends();
    const { log, map } = this.settings;
    if (log) [low, high] = logLimits(values, low, high);
    const colours = palette(map);
    const image = context.createImageData(columns, rows);
    colour(values, low, high, log, new Uint32Array(image.data.buffer), colours);
    context.putImageData(image, 0, 0);
    this.bar.getContext('2d')?.putImageData(new ImageData(new Uint8ClampedArray(colours.buffer), 256, 1), 0, 0);
    canvas.dataset.sequence = String(this.answer.sequence);
    const unit = this.answer.unit ? ` ${this.answer.unit}` : '';
    setText(this.low, number(low) + unit);
    setText(this.high, number(high) + unit + (this.settings.log ? ' (log)' : ''));
  }

  /** The part that is shown. */
  get region() {
    return this.answer?.region ?? [0, 0, 1, 1];
  }

  /**
   * Shows a part, moved and rounded so that it lies in the image.
   * @param {number[] | null} part x0, y0, x1, y1; null: all
   */
  show(part) {
    if (!this.answer) return;
    const [rows, columns] = this.answer.shape;
    if (part) {
      const fit = (/** @type {number} */ a, /** @type {number} */ b, /** @type {number} */ most) => {
        const size = Math.min(most, Math.max(CLOSEST, Math.round(b - a)));
        const first = Math.min(most - size, Math.max(0, Math.round((a + b - size) / 2)));
        return [first, first + size];
      };
      const [x0, x1] = fit(part[0], part[2], columns);
      const [y0, y1] = fit(part[1], part[3], rows);
      part = x1 - x0 === columns && y1 - y0 === rows ? null : [x0, y0, x1, y1];
    }
    if (String(part) !== String(this.settings.region)) this.set({ region: part });
  }

  /**
   * @param {number} factor of the length of the sides
   * @param {[number, number]} [at] the point that stays, in shares of the picture
   */
  zoom(factor, at = this.share() ?? [0.5, 0.5]) {
    const [x0, y0, x1, y1] = this.settings.region ?? this.region;
    const [width, height] = [x1 - x0, y1 - y0];
    const [x, y] = [x0 + at[0] * width, y0 + at[1] * height];
    const [left, top] = [x - at[0] * width * factor, y - at[1] * height * factor];
    this.show([left, top, left + width * factor, top + height * factor]);
  }

  /** Where the cursor is, in shares of the picture. @returns {[number, number] | null} */
  share() {
    if (!this.cursor) return null;
    const [x0, y0, x1, y1] = this.region;
    const [x, y] = [(this.cursor[0] + 0.5 - x0) / (x1 - x0), (this.cursor[1] + 0.5 - y0) / (y1 - y0)];
    return x < 0 || y < 0 || x > 1 || y > 1 ? null : [x, y];
  }

  /**
   * @param {MouseEvent} event
   * @returns {[number, number]} in shares of the picture
   */
  where(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (/** @type {number} */ at, /** @type {number} */ size) => Math.min(1, Math.max(0, at / size));
    return [share(event.clientX - box.left, box.width), share(event.clientY - box.top, box.height)];
  }

  /** @param {[number, number] | null} share of the picture */
  point(share) {
    if (share) {
      const [x0, y0, x1, y1] = this.region;
      const x = Math.min(x1 - 1, Math.floor(x0 + share[0] * (x1 - x0)));
      const y = Math.min(y1 - 1, Math.floor(y0 + share[1] * (y1 - y0)));
      this.cursor = [x, y];
    } else {
      this.cursor = null;
    }
    this.read();
  }

  /** Shows the value under the cursor. */
  read() {
    const share = this.share();
    this.mark.hidden = !share;
    if (!share || !this.cursor || !this.answer) {
      setText(this.value, '');
      return;
    }
    this.mark.style.left = `${share[0] * 100}%`;
    this.mark.style.top = `${share[1] * 100}%`;
    const { shape, values } = this.answer.arrays.values;
    const row = Math.min(shape[0] - 1, Math.floor(share[1] * shape[0]));
    const column = Math.min(shape[1] - 1, Math.floor(share[0] * shape[1]));
    const [x0, y0, x1, y1] = this.region;
    const reduced = shape[1] < x1 - x0 || shape[0] < y1 - y0 ? ` (${this.settings.reduce})` : '';
    const { axes, unit, arrays, numbers } = this.answer;
    const error = arrays.errors ? ` ± ${number(arrays.errors.values[row * shape[1] + column])}` : '';
    const here = values[row * shape[1] + column];
    const value = Number.isNaN(here) ? 'masked' : `${number(here)}${error}${unit ? ` ${unit}` : ''}`;
    // Rows and columns have names and units of their own where the message has axes.
    const places = axes
      ? [placed(axes[1], arrays.x.values, column), placed(axes[0], arrays.y.values, row)].filter((place) => place)
      : [];
    if (numbers) places.push(`pixel ${numbers[0] + this.cursor[1] * numbers[1] + this.cursor[0] * numbers[2]}`);
    places.push(`column ${this.cursor[0]}, row ${this.cursor[1]}`);
    setText(this.value, `${places.join(', ')}: ${value}${reduced}`);
  }

  /** @param {[number, number] | null} to the other corner of the part that is being chosen */
  choose(to) {
    this.chosen.hidden = !to || !this.dragged;
    if (!to || !this.dragged) {
      this.dragged = null;
      return;
    }
    const [left, right] = [this.dragged[0], to[0]].sort((a, b) => a - b);
    const [top, bottom] = [this.dragged[1], to[1]].sort((a, b) => a - b);
    const style = this.chosen.style;
    style.left = `${left * 100}%`;
    style.top = `${top * 100}%`;
    style.width = `${(right - left) * 100}%`;
    style.height = `${(bottom - top) * 100}%`;
  }

  /** @param {PointerEvent} event */
  press(event) {
    // A finger scrolls the page; the buttons zoom.
    if (event.button !== 0 || event.pointerType === 'touch') return;
    this.dragged = this.where(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  move(event) {
    const at = this.where(event);
    this.point(at);
    if (this.dragged) this.choose(at);
  }

  /** @param {PointerEvent} event */
  release(event) {
    const from = this.dragged;
    const to = this.where(event);
    this.choose(null);
    const box = this.canvas.getBoundingClientRect();
    // A click is not a choice.
    if (!from || Math.abs(to[0] - from[0]) * box.width < 5 || Math.abs(to[1] - from[1]) * box.height < 5) return;
    const [x0, y0, x1, y1] = this.region;
    const xs = [from[0], to[0]].map((x) => x0 + x * (x1 - x0)).sort((a, b) => a - b);
    const ys = [from[1], to[1]].map((y) => y0 + y * (y1 - y0)).sort((a, b) => a - b);
    this.show([xs[0], ys[0], xs[1], ys[1]]);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    // Without the focus the wheel scrolls the page.
    if (document.activeElement !== this.canvas) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.where(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, [number, number]>} */
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const arrow = arrows[event.key];
    const [x0, y0, x1, y1] = this.region;
    if (arrow && event.shiftKey) {
      const [x, y] = [(arrow[0] * (x1 - x0)) / 4, (arrow[1] * (y1 - y0)) / 4];
      this.show([x0 + x, y0 + y, x1 + x, y1 + y]);
    } else if (arrow) {
      // A step is a pixel that is drawn.
      const [rows, columns] = this.answer?.arrays.values.shape ?? [1, 1];
      const [x, y] = this.share() ?? [0.5, 0.5];
      this.point([inside(x + arrow[0] / columns), inside(y + arrow[1] / rows)]);
    } else if (!zoomByKey(event, this)) {
      return;
    }
    event.preventDefault();
  }

  /** Each message is another image. */
  pause() {
    return 0;
  }

  /** Colours of an image are the same on dark and light. */
  theme() {}

  close() {}
}

/** @param {number} share */
function inside(share) {
  return Math.min(0.999999, Math.max(0, share));
}

/**
 * Ends of the colours.
 * @param {Numbers} values
 * @param {number} cut percentage that is cut off at both ends
 * @returns {[number, number]}
 */
export function limits(values, cut) {
  if (cut === 0) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
  }
  const step = Math.max(1, Math.floor(values.length / SAMPLES));
  const sample = [];
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) sample.push(values[i]);
  if (sample.length === 0) return [0, 1];
  const sorted = Float64Array.from(sample).sort();
  const index = Math.min(Math.floor((sorted.length * cut) / 100), (sorted.length - 1) >> 1);
  const [low, high] = [sorted[index], sorted[sorted.length - 1 - index]];
  // Few pixels that differ from all others are what the image shows.
  return low < high ? [low, high] : [sorted[0], sorted[sorted.length - 1]];
}

/**
 * Ends of colours whose logarithm is drawn: where the lower one is not positive, the least positive value.
 * @param {Numbers} values
 * @param {number} low
 * @param {number} high
 * @returns {[number, number]}
 */
export function logLimits(values, low, high) {
  let least = Infinity;
  if (!(low > 0)) for (const value of values) if (value > 0 && value < least) least = value;
  const from = low > 0 ? low : least < Infinity ? least : 1;
  return [from, Math.max(from, high)];
}

/** The number of a field; null where there is none. @param {string} text */
function numberOf(text) {
  return text.trim() === '' || !Number.isFinite(Number(text)) ? null : Number(text);
}

/** Ends of the colours by hand, and the map. @type {import('../state.js').Setting[]} */
const colours = [
  { key: 'low', usual: null, read: (text) => numberOf(text) ?? undefined },
  { key: 'high', usual: null, read: (text) => numberOf(text) ?? undefined },
  { key: 'map', usual: 'viridis', read: (text) => (NAMES.some(([name]) => name === text) ? text : undefined) },
];

/**
 * Colours of values. NaN, a masked pixel, is transparent.
 * @param {Numbers} values
 * @param {number} low
 * @param {number} high
 * @param {boolean} log
 * @param {Uint32Array} pixels
 * @param {Uint32Array} colours
 */
export function colour(values, low, high, log, pixels, colours) {
  const scale = 255 / (log ? Math.log(high / low) : high - low);
  const colourOf = (/** @type {number} */ value) => {
    if (Number.isNaN(value)) return 0;
    // Of a logarithm 0 and negative values have the lowest colour.
    if (!(value > low)) return colours[0];
    const index = (log ? Math.log(value / low) : value - low) * scale;
    // Also where all values are equal: then the scale is infinite.
    return colours[index < 255 ? Math.round(index) : 255];
  };
  if (values instanceof Uint8Array || values instanceof Uint16Array) {
    const table = new Uint32Array(values instanceof Uint8Array ? 256 : 65536);
    for (let i = 0; i < table.length; i += 1) table[i] = colourOf(i);
    for (let i = 0; i < values.length; i += 1) pixels[i] = table[values[i]];
  } else {
    for (let i = 0; i < values.length; i += 1) pixels[i] = colourOf(values[i]);
  }
}

export default { word: 'image', View: ImageView, settings: colours };
