// Events by the number of their pixel, as a curve: of a detector without a known shape a picture would be a guess.

import { element, setText, windowChoice } from '../dom.js';
import { number } from '../format.js';
import { CurveView } from './curve.js';
import { describe, ShapeFields, shaped, WINDOWS } from './events.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

class PixelsView extends CurveView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    super(settings, changed);
    this.shape = new ShapeFields((shape, first) => {
      Object.assign(this.settings, { shape, first, region: null });
      changed();
    });
    this.note = element('p', { class: 'sentence' });
    this.tools.append(windowChoice('last', WINDOWS, settings, 1, changed), ...this.shape.labels);
    this.shape.show([NaN, NaN, settings.first]);
    // In a view that was chosen nothing is missing.
    const isChosen = settings.view === 'pixels';
    this.note.hidden = isChosen;
    for (const label of this.shape.labels) label.hidden = isChosen;
    this.element.prepend(this.note);
    setText(
      this.note,
      'Events by pixel number: no template says how the pixels of this detector lie. Type its rows and columns for a picture.',
    );
  }

  ask() {
    return { ...super.ask(), window: Math.round((this.settings.window ?? 1) * 1e9), ...shaped(this.settings) };
  }

  /** @param {Answer} answer */
  caption(answer) {
    return describe(answer, this.settings.region ? 'in other pixels' : 'in no pixel');
  }

  /** One pixel, or some in a row. @param {number} i */
  placed(i) {
    const [first, next] = [0, 1].map((more) => this.answer?.arrays.x.values[i + more] ?? 0);
    return next - first > 1 ? `pixels ${number(first)} to ${number(next - 1)}` : `pixel ${number(first)}`;
  }

  /**
   * @param {[number, number]} places pixel numbers
   * @returns {number[]}
   */
  part([from, to]) {
    const first = Math.max(0, Math.floor(from));
    return [first, 0, Math.min(2 ** 31, Math.max(first + 4, Math.ceil(to))), 1];
  }
}

export default { word: 'pixels', View: PixelsView };
