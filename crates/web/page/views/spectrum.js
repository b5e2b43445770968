// Events by their time of flight, as a curve.

import { windowChoice } from '../dom.js';
import { CurveView } from './curve.js';
import { describe, WINDOWS } from './events.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

class SpectrumView extends CurveView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    super(settings, changed);
    this.tools.append(windowChoice('last', WINDOWS, settings, 1, changed));
  }

  /** Times are always in ms: the part that is shown may be short. */
  get isLong() {
    return true;
  }

  title() {
    return 'time of flight (ms)';
  }

  /** @param {Answer} answer */
  caption(answer) {
    return describe(answer, 'in no bin');
  }

  ask() {
    return { ...super.ask(), window: Math.round((this.settings.window ?? 1) * 1e9) };
  }

  /**
   * @param {[number, number]} places ms
   * @returns {number[]} ns
   */
  part([from, to]) {
    const first = Math.max(0, Math.round(from / this.factor));
    return [first, 0, Math.max(first + 10, Math.round(to / this.factor)), 1];
  }
}

export default { word: 'spectrum', View: SpectrumView };
