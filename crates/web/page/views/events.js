// Events of a detector as an image: how many came in each pixel in the time up to now.

import { element, setText, windowChoice } from '../dom.js';
import { count, duration } from '../format.js';
import { ImageView } from './image.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

/** @type {[string, string][]} */
export const WINDOWS = [
  ['0.1', '0.1 s'],
  ['1', '1 s'],
  ['10', '10 s'],
  ['60', '1 min'],
];

class EventsView extends ImageView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    super(settings, changed);
    this.sum = element('p', { class: 'muted' });
    const field = (/** @type {string} */ text, /** @type {number} */ least, /** @type {() => void} */ change) => {
      const input = element('input', { type: 'number', min: least, step: 1, change });
      return { input, label: element('label', {}, `${text} `, input) };
    };
    this.rows = field('rows', 1, () => this.reshape());
    this.columns = field('columns', 1, () => this.reshape());
    this.first = field('first pixel', 0, () => this.reshape());
    this.note = element('span', { class: 'muted' });
    this.tools.append(
      windowChoice('last', WINDOWS, settings, 1, changed),
      this.rows.label,
      this.columns.label,
      this.first.label,
      this.note,
    );
    this.element.append(this.sum);
  }

  ask() {
    const { shape, first, window, origin } = this.settings;
    return {
      ...super.ask(),
      window: Math.round((window ?? 1) * 1e9),
      ...(shape ? { shape, first_pixel: first } : {}),
      ...(origin ? { origin } : {}),
    };
  }

  /** @param {Answer} answer */
  draw(answer) {
    super.draw(answer);
    const [rows, columns] = answer.shape;
    for (const [field, value] of /** @type {const} */ ([
      [this.rows, rows],
      [this.columns, columns],
      [this.first, answer.first_pixel ?? this.settings.first],
    ])) {
      if (document.activeElement !== field.input) field.input.value = String(value);
    }
    setText(this.note, answer.guessed ? '(a guess)' : '');
    setText(this.sum, describe(answer, 'in no pixel'));
  }

  reshape() {
    const [rows, columns, first] = [this.rows, this.columns, this.first].map((field) => field.input.valueAsNumber);
    if (!(rows >= 1 && columns >= 1 && first >= 0)) return;
    // A part of another shape is elsewhere.
    this.set({ shape: [rows, columns], first, region: null });
  }
}

/**
 * The events of an answer.
 * @param {Answer} answer
 * @param {string} outside where those are that are not drawn
 * @returns {string}
 */
export function describe(answer, outside) {
  const left = answer.outside ? `, ${count(answer.outside)} ${outside}` : '';
  const span = duration(answer.to - answer.from);
  return `${count(answer.events)} events in ${count(answer.messages)} messages of ${span}${left}`;
}

/** Rows and columns of the detector; null: as the server has them. @type {import('../state.js').Setting} */
const shape = {
  key: 'shape',
  usual: null,
  read: (text) => (/^[1-9]\d*,[1-9]\d*$/.test(text) ? text.split(',').map(Number) : undefined),
};

/** Its lowest pixel number. @type {import('../state.js').Setting} */
const first = {
  key: 'first',
  usual: 1,
  read: (text) => (/^\d+$/.test(text) ? Number(text) : undefined),
};

export default { word: 'events', View: EventsView, settings: [shape, first] };
