// What the page shows, as the hash of its address: `#at=NS&span=S&panel=STREAM;KEY=VALUE;...&panel=...`.

import { VIEWS } from './views/index.js';

/** The time bar, s. */
const SPAN = 600;
/** Letters of a panel in the hash: all panels fit into one request. */
const LONGEST = 1000;

/**
 * The settings of one panel; a view may have more of its own.
 * @typedef {{stream: string, view: string, origin: string, window: number | null, region: number[] | null, reduce: string,
 *   log: boolean, cut: string, sequence: number | null, [key: string]: any}} Settings
 */

/**
 * A setting of a panel.
 * @typedef {object} Setting
 * @property {string} key in the settings and in the hash
 * @property {any} usual what is not written
 * @property {(text: string) => any} read what a text of the hash means; undefined: nothing
 * @property {(value: any) => string} [write]
 */

/** Those of all views. @type {Setting[]} */
const COMMON = [
  // `auto`, or the word of a view.
  { key: 'view', usual: 'auto', read: (text) => (VIEWS.some(({ word }) => word === text) ? text : undefined) },
  // Empty: all.
  { key: 'origin', usual: '', read: decode, write: encodeURIComponent },
  // s; null: as the view has it.
  { key: 'window', usual: null, read: (text) => (isTime(text) ? Number(text) : undefined) },
  // x0, y0, x1, y1; null: all.
  { key: 'region', usual: null, read: (text) => (/^\d+(,\d+){3}$/.test(text) ? text.split(',').map(Number) : undefined) },
  // `mean` or `max`.
  { key: 'reduce', usual: 'mean', read: (text) => (text === 'max' ? text : undefined) },
  { key: 'log', usual: false, read: () => true, write: () => '' },
  // Percentage of the pixels that is cut off at both ends of the colours.
  { key: 'cut', usual: '0.5', read: (text) => (Number(text) >= 0 && Number(text) < 50 ? text : undefined) },
  // Null: the newest.
  { key: 'sequence', usual: null, read: (text) => (/^\d+$/.test(text) ? Number(text) : undefined) },
];

/** Those of single views too. */
function all() {
  return [...COMMON, ...VIEWS.flatMap((view) => view.settings ?? [])];
}

/**
 * @typedef {object} State
 * @property {number | null} at ns since 1970 UTC; null: now
 * @property {number} span of the time bar, s
 * @property {Settings[] | null} panels null: one for each stream
 */

/**
 * @param {string} stream
 * @returns {Settings}
 */
export function settings(stream) {
  return /** @type {Settings} */ ({ stream, ...Object.fromEntries(all().map(({ key, usual }) => [key, usual])) });
}

/**
 * Reads a hash; what it does not understand it leaves out.
 * @param {string} hash
 * @returns {State & {token: string}}
 */
export function read(hash) {
  /** @type {State & {token: string}} */
  const state = { at: null, span: SPAN, panels: null, token: '' };
  for (const part of hash.replace(/^#/, '').split('&')) {
    const [key, value] = halves(part);
    if (key === 'token') state.token = decode(value);
    // A number of 64 bits.
    if (key === 'at' && /^\d+$/.test(value) && Number(value) < 9.2e18) state.at = Number(value);
    if (key === 'span' && isTime(value)) state.span = Number(value);
    if (key === 'panel') {
      state.panels ??= [];
      if (value && value.length <= LONGEST) state.panels.push(readPanel(value));
    }
  }
  return state;
}

/**
 * @param {string} text
 * @returns {Settings}
 */
function readPanel(text) {
  const [stream, ...rest] = text.split(';');
  const panel = settings(decode(stream));
  for (const part of rest) {
    const [key, value] = halves(part);
    const read = all().find((setting) => setting.key === key)?.read(value);
    if (read !== undefined) panel[key] = read;
  }
  return panel;
}

/** A length of time, s, that is one of ns too. @param {string} text */
function isTime(text) {
  return Number(text) > 0 && Number(text) <= 1e9;
}

/**
 * @param {State} state
 * @returns {string} without `#`
 */
export function write(state) {
  const parts = state.at === null ? [] : [`at=${state.at}`];
  if (state.span !== SPAN) parts.push(`span=${state.span}`);
  if (state.panels?.length === 0) parts.push('panel=');
  for (const panel of state.panels ?? []) parts.push(`panel=${writePanel(panel)}`);
  return parts.join('&');
}

/**
 * @param {Settings} panel
 * @returns {string}
 */
export function writePanel(panel) {
  const parts = [encodeURIComponent(panel.stream)];
  for (const { key, usual, write = String } of all()) {
    const text = panel[key] === usual ? null : write(panel[key]);
    if (text !== null) parts.push(text ? `${key}=${text}` : key);
  }
  return parts.join(';');
}

/**
 * @param {string} text
 * @returns {[string, string]}
 */
function halves(text) {
  const at = text.indexOf('=');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/**
 * @param {string} text
 * @returns {string}
 */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
