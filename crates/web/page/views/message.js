// One message as its fields and its first bytes; any message by its number or its time.

import { look, sentence } from '../api.js';
import { element, flip, setText } from '../dom.js';
import { count, time } from '../format.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

class MessageView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.changed = changed;
    this.staysOnFault = true;
    /** @type {Answer | null} */
    this.answer = null;
    /** Numbers the steps and searches: the answer to an earlier one is too late. */
    this.asked = 0;
    this.number = element('input', {
      type: 'number',
      min: 0,
      step: 1,
      change: () => (this.number.value === '' ? this.go(null) : this.show(null, { sequence: this.number.valueAsNumber })),
    });
    this.time = element('input', { type: 'text', size: 23, placeholder: 'YYYY-MM-DD hh:mm:ss.sss', change: () => this.find() });
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ click) =>
      element('button', { type: 'button', title, click }, text);
    this.newest = button('Newest', 'End', () => this.go(null));
    this.isOfOrigin = flip('of the same origin', false, () => {});
    this.note = element('p', { class: 'readout', role: 'status' });
    this.tools = element(
      'div',
      { class: 'tools' },
      element('label', {}, 'message ', this.number),
      element('label', {}, 'at (UTC) ', this.time),
      button('Previous', 'Arrow left', () => this.step(-1)),
      button('Next', 'Arrow right', () => this.step(1)),
      this.newest,
      this.isOfOrigin,
    );
    this.fields = element('dl', { class: 'fields' });
    this.bytes = element('pre', { class: 'bytes' });
    this.length = element('p', { class: 'muted' });
    const fields = {
      class: 'scroll',
      tabindex: 0,
      role: 'region',
      'aria-label': `Fields of ${settings.stream}. Arrow keys left and right show the message before and after; End the newest.`,
      keydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
    };
    this.element = element(
      'div',
      {},
      this.tools,
      this.note,
      element('div', fields, this.fields),
      element(
        'details',
        {},
        element('summary', {}, 'Bytes'),
        this.length,
        element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Bytes of ${settings.stream}` }, this.bytes),
      ),
    );
    this.mark();
  }

  /** @returns {Partial<import('../api.js').Asked>} */
  ask() {
    const { sequence, origin } = this.settings;
    return { ...(sequence === null ? {} : { sequence }), ...(origin ? { origin } : {}) };
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    if (document.activeElement !== this.number) this.number.value = String(answer.sequence);
    if (document.activeElement !== this.time) this.time.value = time(answer.source_time ?? 0);
    const rows = [...flatten(answer.fields, '')];
    // The rows of a stream are mostly those of the message before: only texts change.
    while (this.fields.children.length > rows.length * 2) this.fields.lastElementChild?.remove();
    for (const [i, [name, value]] of rows.entries()) {
      if (!this.fields.children[i * 2]) this.fields.append(element('dt'), element('dd'));
      setText(this.fields.children[i * 2], name);
      setText(this.fields.children[i * 2 + 1], value);
    }
    setText(this.length, `${count(answer.bytes)} bytes; the first ${answer.first.length / 2}:`);
    setText(this.bytes, hex(answer.first));
  }

  /** @param {number | null} sequence null: the newest */
  go(sequence) {
    this.asked += 1;
    setText(this.note, '');
    this.settings.sequence = sequence;
    this.mark();
    this.changed();
  }

  /**
   * Shows the message before or after the one that is shown.
   * @param {-1 | 1} step
   */
  step(step) {
    const at = this.settings.sequence ?? this.answer?.sequence;
    if (at === undefined) return;
    if (this.isOfOrigin.querySelector('input')?.checked) this.show(null, { sequence: at, step });
    else if (at + step < 0) setText(this.note, '▲ This is the first message.');
    else this.show(null, { sequence: at + step });
  }

  /** Shows the newest message up to the time of the field. */
  find() {
    const at = Date.parse(`${this.time.value.trim().replace(' ', 'T')}Z`);
    if (Number.isNaN(at)) setText(this.note, '▲ This is not a date and time.');
    // Times of messages are shown to the ms: it is the newest one within this ms.
    else this.show(at * 1e6 + 999999, {});
  }

  /**
   * Shows the message that the server finds.
   * @param {number | null} at
   * @param {Partial<import('../api.js').Asked>} which
   */
  async show(at, which) {
    const asked = (this.asked += 1);
    const { stream, origin } = this.settings;
    /** @type {import('../api.js').Asked} */
    const panel = { stream, view: 'message', width: 1, height: 1, ...(origin ? { origin } : {}), ...which };
    try {
      const [found] = (await look(at, [panel])).panels;
      if (asked !== this.asked) return;
      if (found.sequence !== undefined && !found.fault) this.go(found.sequence);
      else setText(this.note, `▲ ${sentence(found.fault ?? { what: 'there is no such message', cause: '', hint: '' })}`);
    } catch (error) {
      if (asked === this.asked) setText(this.note, `▲ ${error instanceof Error ? error.message : error}`);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === 'ArrowLeft') this.step(-1);
    else if (event.key === 'ArrowRight') this.step(1);
    else if (event.key === 'End') this.go(null);
    else return;
    event.preventDefault();
  }

  mark() {
    this.newest.setAttribute('aria-pressed', String(this.settings.sequence === null));
  }

  /** The newest message is read by people, not drawn. */
  pause() {
    return 500;
  }

  theme() {}

  close() {}
}

/**
 * Names and texts of the fields, groups taken apart.
 * @param {any} value
 * @param {string} path
 * @returns {Generator<[string, string]>}
 */
function* flatten(value, path) {
  const parts = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  const list = Array.isArray(value) && value.every((part) => typeof part !== 'object' || part === null);
  if (parts.length === 0 || list) {
    yield [path || 'value', list ? `[${value.map(plain).join(', ')}]` : plain(value)];
  } else if (!Array.isArray(value) && 'first' in value && 'shape' in value) {
    // An array: its type, its shape and its first values.
    const rest = value.shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1) > value.first.length;
    yield [path, `${value.dtype} [${value.shape.join(' × ')}]: ${value.first.map(plain).join(', ')}${rest ? ', …' : ''}`];
  } else {
    for (const [key, part] of parts) yield* flatten(part, path ? `${path}.${key}` : key);
  }
}

/** @param {any} value */
function plain(value) {
  return typeof value === 'string' ? value : value === null ? 'null' : typeof value === 'object' ? '{}' : String(value);
}

/**
 * Rows of 16 bytes: place, hexadecimal, letters.
 * @param {string} text hexadecimal
 */
function hex(text) {
  const rows = [];
  for (let at = 0; at < text.length; at += 32) {
    const bytes = text.slice(at, at + 32).match(/../g) ?? [];
    const letters = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : '.';
    });
    rows.push(`${(at / 2).toString(16).padStart(4, '0')}  ${bytes.join(' ').padEnd(47)}  ${letters.join('')}`);
  }
  return rows.join('\n');
}

export default { word: 'message', View: MessageView };
