// What the page shows, as the hash of its address: `#at=NS&span=S&panel=STREAM;KEY=VALUE;...&panel=...`.

/** The time bar, s. */
const SPAN = 600;
/** Letters of a panel in the hash: all panels fit into one request. */
const LONGEST = 1000;

/** What a panel may be, beside `auto`. */
export const VIEWS = ['image', 'events', 'curve', 'spectrum', 'trend', 'groups', 'message'];

/**
 * What one panel shows.
 * @typedef {object} Settings
 * @property {string} stream
 * @property {string} view `auto`, or one of VIEWS
 * @property {string} origin empty: all
 * @property {number | null} window s; null: as the view has it
 * @property {number[] | null} region x0, y0, x1, y1; null: the whole image
 * @property {string} reduce `mean` or `max`
 * @property {boolean} log
 * @property {string} cut percentage of the pixels that is cut off at both ends of the colours
 * @property {number[] | null} shape rows and columns of a detector; null: guessed
 * @property {number} first lowest pixel number of a detector
 * @property {number | null} sequence null: the newest
 */

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
  return {
    stream,
    view: 'auto',
    origin: '',
    window: null,
    region: null,
    reduce: 'mean',
    log: false,
    cut: '0.5',
    shape: null,
    first: 1,
    sequence: null,
  };
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
    if (key === 'view' && VIEWS.includes(value)) panel.view = value;
    if (key === 'origin') panel.origin = decode(value);
    if (key === 'window' && isTime(value)) panel.window = Number(value);
    if (key === 'region' && /^\d+(,\d+){3}$/.test(value)) panel.region = value.split(',').map(Number);
    if (key === 'shape' && /^[1-9]\d*,[1-9]\d*$/.test(value)) panel.shape = value.split(',').map(Number);
    if (key === 'first' && /^\d+$/.test(value)) panel.first = Number(value);
    if (key === 'reduce' && value === 'max') panel.reduce = value;
    if (key === 'log') panel.log = true;
    if (key === 'cut' && Number(value) >= 0 && Number(value) < 50) panel.cut = value;
    if (key === 'sequence' && /^\d+$/.test(value)) panel.sequence = Number(value);
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
  const usual = settings(panel.stream);
  const parts = [encodeURIComponent(panel.stream)];
  if (panel.view !== usual.view) parts.push(`view=${panel.view}`);
  if (panel.origin) parts.push(`origin=${encodeURIComponent(panel.origin)}`);
  if (panel.window !== null) parts.push(`window=${panel.window}`);
  if (panel.region) parts.push(`region=${panel.region.join(',')}`);
  if (panel.shape) parts.push(`shape=${panel.shape.join(',')}`);
  if (panel.first !== usual.first) parts.push(`first=${panel.first}`);
  if (panel.reduce !== usual.reduce) parts.push(`reduce=${panel.reduce}`);
  if (panel.log) parts.push('log');
  if (panel.cut !== usual.cut) parts.push(`cut=${panel.cut}`);
  if (panel.sequence !== null) parts.push(`sequence=${panel.sequence}`);
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
