// What a panel shows, as a file: its picture as PNG, its numbers as CSV.

import { element } from './dom.js';
import { time } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */

/** Room for the line above the picture, px. */
const HEAD = 24;

/**
 * Gives a file to the user.
 * @param {string} name
 * @param {Blob} blob
 */
function give(name, blob) {
  const href = URL.createObjectURL(blob);
  element('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

/**
 * The name of a file: its stream, and the time that is shown.
 * @param {string} stream
 * @param {Answer} answer
 * @param {string} end
 */
function nameOf(stream, answer, end) {
  const at = answer.source_time ?? answer.to;
  return `${stream}${at === undefined ? '' : `-${time(at).replace(/[^\d]+/g, '-')}`}.${end}`;
}

/**
 * Saves the largest canvas of a panel, below a line that says what it is.
 * @param {string} stream
 * @param {string} title
 * @param {HTMLElement} place
 * @param {Answer} answer
 */
export function savePicture(stream, title, place, answer) {
  const [canvas] = [...place.querySelectorAll('canvas')].sort((a, b) => b.width * b.height - a.width * a.height);
  if (!canvas) return;
  const box = canvas.getBoundingClientRect();
  const width = Math.max(canvas.width, Math.round(box.width));
  const height = Math.max(1, Math.round((width * box.height) / (box.width || 1)));
  const whole = element('canvas', { width, height: height + HEAD });
  const context = whole.getContext('2d');
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  context.fillStyle = style.getPropertyValue('--back').trim();
  context.fillRect(0, 0, width, height + HEAD);
  context.fillStyle = style.getPropertyValue('--text').trim();
  context.font = '13px sans-serif';
  context.fillText(`${stream} · ${title}`, 4, HEAD - 8);
  // A pixel of an image stays a pixel.
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, HEAD, width, height);
  whole.toBlob((blob) => blob && give(nameOf(stream, answer, 'png'), blob));
}

/**
 * Saves the numbers of a panel.
 * @param {string} stream
 * @param {Answer} answer
 */
export function saveNumbers(stream, answer) {
  give(nameOf(stream, answer, 'csv'), new Blob([numbers(stream, answer)], { type: 'text/csv' }));
}

/**
 * The arrays of an answer: an image as a matrix, all others as columns.
 * @param {string} stream
 * @param {Answer} answer
 * @returns {string}
 */
export function numbers(stream, answer) {
  const { arrays, series } = answer;
  const at = answer.source_time ?? answer.to;
  const lines = [`# stream ${stream}, view ${answer.view}${at === undefined ? '' : `, ${time(at)} UTC`}${answer.unit ? `, ${answer.unit}` : ''}`];
  const text = (/** @type {number | undefined} */ value) => (value === undefined || Number.isNaN(value) ? '' : String(value));
  const matrix = arrays.values?.shape.length === 2 ? arrays.values : null;
  if (matrix) {
    const [x0, y0, x1, y1] = answer.region;
    lines.push(`# columns ${x0} to ${x1 - 1}, rows ${y0} to ${y1 - 1}`);
    const [rows, columns] = matrix.shape;
    for (let row = 0; row < rows; row += 1) {
      lines.push(Array.from(matrix.values.subarray(row * columns, (row + 1) * columns), text).join(','));
    }
    return `${lines.join('\n')}\n`;
  }
  /** @type {[string, ArrayLike<number>][]} */
  const all = Object.entries(arrays).map(([name, { values }]) => [name, values]);
  for (const column of series ? all : []) {
    const [, kind, place] = /^(\D+)(\d+)$/.exec(column[0]) ?? [];
    column[0] = `${series[Number(place)]?.origin ?? ''} ${kind}`;
  }
  const length = Math.max(0, ...all.map(([, values]) => values.length));
  if (series && length > 0) {
    // The end of each part of the time.
    const step = (answer.to - answer.from) / length;
    all.unshift(['time (s since 1970 UTC)', Array.from({ length }, (_, i) => (answer.from + (i + 1) * step) / 1e9)]);
  }
  lines.push(all.map(([name]) => (/[",\n]/.test(name) ? `"${name.replace(/"/g, '""')}"` : name)).join(','));
  for (let i = 0; i < length; i += 1) lines.push(all.map(([, values]) => text(values[i])).join(','));
  return `${lines.join('\n')}\n`;
}
