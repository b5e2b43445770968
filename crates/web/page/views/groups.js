// Groups: how many have how many members, and which members are missing.

import { element, setText, Table, windowChoice } from '../dom.js';
import { WINDOWS } from './events.js';
import { count, duration } from '../format.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../state.js').Settings} Settings */

/** Cells of the longest bar. */
const LONGEST = 20;
/** Time that is counted, s. */
const USUAL = 60;
/** Rows of the table. */
const MOST = 40;

class GroupsView {
  /**
   * @param {Settings} settings
   * @param {() => void} changed the settings are others now
   */
  constructor(settings, changed) {
    this.settings = settings;
    this.sum = element('p', {});
    this.table = new Table(
      `Multiplicity of ${settings.stream}`,
      [
        ['messages', 'number'],
        ['groups', 'number'],
        ['', ''],
      ],
      MOST,
    );
    this.missing = new Table(`Missing members of ${settings.stream}`, [
      ['missing member', ''],
      ['groups', 'number'],
    ]);
    for (const table of [this.table, this.missing]) table.element.classList.add('narrow');
    this.element = element(
      'div',
      {},
      this.sum,
      element('div', { class: 'scroll' }, this.table.element, this.missing.element),
      element('div', { class: 'tools' }, windowChoice('last', WINDOWS, settings, USUAL, changed)),
    );
  }

  /** @returns {Partial<import('../api.js').Asked>} */
  ask() {
    return { window: Math.round((this.settings.window ?? USUAL) * 1e9) };
  }

  /** @param {Answer} answer */
  draw(answer) {
    const counts = answer.arrays.multiplicity.values;
    let most = 0;
    for (const value of counts) most = Math.max(most, value);
    const rows = [...counts].map((groups, members) => ({ groups, members })).filter(({ groups }) => groups > 0);
    this.table.show(
      rows.map(({ groups, members }) => ({
        key: String(members),
        cells: [count(members), count(groups), '█'.repeat(Math.max(1, Math.round((groups / most) * LONGEST)))],
      })),
    );
    const missing = answer.missing ?? [];
    this.missing.element.hidden = missing.length === 0;
    this.missing.show(missing.map((one) => ({ key: one.member, cells: [one.member, count(one.count)] })));
    const incomplete = answer.incomplete ? `, ▲ ${count(answer.incomplete)} with missing members` : '';
    setText(this.sum, `${count(answer.groups)} groups in ${duration(answer.to - answer.from)}${incomplete}`);
  }

  /** Groups come at any time. */
  pause() {
    return 200;
  }

  theme() {}

  close() {}
}

export default { word: 'groups', View: GroupsView };
