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
    this.shape = new ShapeFields((shape, first) => this.set({ shape, first, region: null }));
    this.tools.append(windowChoice('last', WINDOWS, settings, 1, changed), ...this.shape.labels);
    this.element.append(this.sum);
  }

  ask() {
    const { window, origin } = this.settings;
    return {
      ...super.ask(),
      window: Math.round((window ?? 1) * 1e9),
      ...shaped(this.settings),
      ...(origin ? { origin } : {}),
    };
  }

  /** @param {Answer} answer */
  draw(answer) {
    super.draw(answer);
    this.shape.show([...answer.shape, answer.first_pixel]);
    setText(this.sum, describe(answer, 'in no pixel'));
  }
}

/** Fields for the shape of a detector. */
export class ShapeFields {
  /** @param {(shape: number[], first: number) => void} changed a part of another shape is elsewhere */
  constructor(changed) {
    const change = () => {
      const [rows, columns, first] = this.fields.map((field) => field.valueAsNumber);
      if (rows >= 1 && columns >= 1 && first >= 0) changed([rows, columns], first);
    };
    this.fields = [1, 1, 0].map((least) => element('input', { type: 'number', min: least, step: 1, change }));
    this.labels = ['rows', 'columns', 'first pixel'].map((text, i) => element('label', {}, `${text} `, this.fields[i]));
  }

  /** @param {number[]} values of the fields in which nobody types */
  show(values) {
    for (const [i, value] of values.entries()) {
      if (document.activeElement !== this.fields[i]) this.fields[i].value = String(value);
    }
  }
}

/**
 * The shape of a request, where one was typed.
 * @param {Settings} settings
 */
export function shaped({ shape, first }) {
  return shape ? { shape, first_pixel: first } : {};
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
