// The axes of an image: names, units and values along its sides.

import { element, setText } from './dom.js';
import { number, precise } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./api.js').Axis} Axis */

/** Ticks of an axis, at most. */
const TICKS = 5;

export class Axes {
  /** @param {HTMLElement} picture */
  constructor(picture) {
    this.rowTitle = element('p', { class: 'muted' });
    this.columnTitle = element('p', { class: 'muted' });
    this.rows = element('div', { class: 'ticks' });
    this.columns = element('div', { class: 'ticks' });
    this.element = element('div', { class: 'axes' }, this.rowTitle, this.rows, picture, this.columns, this.columnTitle);
  }

  /**
   * @param {Answer} answer
   * @param {number} ratio of the width of the picture to its height
   */
  show(answer, ratio) {
    const [rows, columns] = answer.axes ?? [];
    const { x, y } = answer.arrays;
    for (const one of [this.rowTitle, this.columnTitle, this.rows, this.columns]) one.hidden = !rows;
    const ticksOfRows = rows ? ticks(y.values, rows.edges) : [];
    const width = ticksOfRows.reduce((most, { text }) => Math.max(most, text.length + 1), 0);
    this.element.style.gridTemplateColumns = `${width}ch minmax(0, calc(${ratio} * 32rem))`;
    if (!rows || !columns) return;
    const rises = y.values[0] > y.values[y.values.length - 1];
    setText(this.rowTitle, `${rises ? '↑' : '↓'} ${titled(rows) || 'row'}`);
    setText(this.columnTitle, `→ ${titled(columns) || 'column'}`);
    put(this.rows, ticksOfRows, 'top');
    put(this.columns, ticks(x.values, columns.edges), 'left');
  }
}

/**
 * @param {HTMLElement} side
 * @param {{at: number, text: string}[]} all
 * @param {'top' | 'left'} from
 */
function put(side, all, from) {
  while (side.children.length > all.length) side.lastElementChild?.remove();
  for (const [i, { at, text }] of all.entries()) {
    if (!side.children[i]) side.append(element('span'));
    const tick = /** @type {HTMLElement} */ (side.children[i]);
    tick.style[from] = `${at * 100}%`;
    // At an end the text lies inside, where it is not cut off.
    const share = at < 0.04 ? 0 : at > 0.96 ? -100 : -50;
    tick.style.transform = from === 'left' ? `translateX(${share}%)` : `translateY(${share}%)`;
    setText(tick, text);
  }
}

/**
 * Width of the side of a plot on which its values stand: the longest of them has room.
 * @param {uPlot} _plot
 * @param {string[] | null} texts
 * @returns {number} px
 */
export function side(_plot, texts) {
  return 22 + 7.5 * Math.max(4, ...(texts ?? []).map((text) => text?.length ?? 0));
}

/**
 * A name with its unit.
 * @param {{name?: string | null, label?: string | null, unit?: string | null}} what
 * @returns {string}
 */
export function titled(what) {
  const name = what.label || what.name || '';
  return what.unit ? `${name} (${what.unit})`.trim() : name;
}

/**
 * The values of an axis at one place: `width 1 to 2 mm`. Empty where the axis has no name: its values are numbers of
 * pixels.
 * @param {Axis} axis
 * @param {ArrayLike<number>} values
 * @param {number} at
 * @returns {string}
 */
export function placed(axis, values, at) {
  const name = axis.label || axis.name;
  if (!name) return '';
  const to = axis.edges ? ` to ${number(values[at + 1])}` : '';
  return `${name} ${number(values[at])}${to}${axis.unit ? ` ${axis.unit}` : ''}`;
}

/**
 * Round values of an axis and where they are, 0 to 1. Values that neither rise nor fall have ticks at equal places.
 * @param {ArrayLike<number>} values edges, or the middle of each place
 * @param {boolean} edges
 * @returns {{at: number, text: string}[]}
 */
export function ticks(values, edges) {
  const count = edges ? values.length - 1 : values.length;
  const place = (/** @type {number} */ i) => (edges ? i : i + 0.5) / count;
  const last = values.length - 1;
  const rises = values[last] >= values[0];
  for (let i = 1; i <= last; i += 1) {
    if (!(rises ? values[i] >= values[i - 1] : values[i] <= values[i - 1])) return some(values, place);
  }
  const [low, high] = rises ? [values[0], values[last]] : [values[last], values[0]];
  if (!(high > low)) return some(values, place);
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    const value = n * step;
    let i = 1;
    while (i < last && (rises ? values[i] < value : values[i] > value)) i += 1;
    const share = (value - values[i - 1]) / (values[i] - values[i - 1] || 1);
    const at = place(i - 1) + (place(i) - place(i - 1)) * Math.min(1, Math.max(0, share));
    found.push({ at, text: precise(value, step) });
  }
  return apart(found);
}

/**
 * The first value, that in the middle and the last one.
 * @param {ArrayLike<number>} values
 * @param {(i: number) => number} place
 */
function some(values, place) {
  const last = values.length - 1;
  return [...new Set([0, last >> 1, last])].map((i) => ({ at: place(i), text: number(values[i]) }));
}

/**
 * Leaves out ticks whose texts would overlap: bins of unequal width have round values close together.
 * @param {{at: number, text: string}[]} all
 */
function apart(all) {
  let before = -1;
  return all
    .sort((a, b) => a.at - b.at)
    .filter(({ at }) => {
      if (at - before < 0.12) return false;
      before = at;
      return true;
    });
}
