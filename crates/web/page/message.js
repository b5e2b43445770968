// One message as its fields and its first bytes; any message by its number.

import { element, setText } from './dom.js';
import { count } from './format.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./state.js').Settings} Settings */

export class MessageView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.changed = changed;
    /** @type {Answer | null} */
    this.answer = null;
    this.number = element('input', {
      type: 'number',
      min: 0,
      step: 1,
      change: () => this.go(this.number.value === '' ? null : this.number.valueAsNumber),
    });
    const button = (/** @type {string} */ text, /** @type {() => void} */ click) =>
      element('button', { type: 'button', click }, text);
    this.newest = button('Newest', () => this.go(null));
    this.tools = element(
      'div',
      { class: 'tools' },
      element('label', {}, 'message ', this.number),
      button('Previous', () => this.step(-1)),
      button('Next', () => this.step(1)),
      this.newest,
    );
    this.fields = element('dl', { class: 'fields' });
    this.bytes = element('pre', { class: 'bytes' });
    this.length = element('p', { class: 'muted' });
    this.element = element(
      'div',
      {},
      element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Fields of ${settings.stream}` }, this.fields),
      element(
        'details',
        {},
        element('summary', {}, 'Bytes'),
        this.length,
        element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Bytes of ${settings.stream}` }, this.bytes),
      ),
      this.tools,
    );
    this.mark();
  }

  /** @returns {Partial<import('./api.js').Asked>} */
  ask() {
    const { sequence, origin } = this.settings;
    return { ...(sequence === null ? {} : { sequence }), ...(origin ? { origin } : {}) };
  }

  /** @param {Answer} answer */
  draw(answer) {
    this.answer = answer;
    if (document.activeElement !== this.number) this.number.value = String(answer.sequence);
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
    this.settings.sequence = sequence;
    this.mark();
    this.changed();
  }

  /** @param {number} step */
  step(step) {
    const at = this.settings.sequence ?? this.answer?.sequence;
    if (at !== undefined) this.go(Math.max(0, at + step));
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
