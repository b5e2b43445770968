// A panel: what one stream shows. Its view follows the schema of the answer, unless another one is chosen.

import { sentence } from './api.js';
import { choice, element, setText } from './dom.js';
import { duration, time } from './format.js';
import { saveNumbers, savePicture } from './save.js';
import { writePanel } from './state.js';
import { VIEWS } from './views/index.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./api.js').Asked} Asked */
/** @typedef {import('./state.js').Settings} Settings */

/** @typedef {import('./views/index.js').View} View */

let made = 0;

export class Panel {
  /**
   * @param {Settings} settings
   * @param {{changed: () => void, close: () => void, again: () => void}} page what the page does
   */
  constructor(settings, page) {
    this.settings = settings;
    this.page = page;
    this.isVisible = false;
    /** The identity of what is drawn, and what it was asked with. */
    this.known = '';
    this.knownFor = '';
    /** Nothing new is to be seen before, ms of `performance.now`. */
    this.due = 0;
    /** @type {View | null} */
    this.view = null;
    this.kind = '';
    /** The answer that is drawn. @type {Answer | null} */
    this.answer = null;
    const id = `panel-${(made += 1)}`;
    this.meta = element('p', { class: 'meta muted' });
    this.fault = element('p', { class: 'sentence bad', hidden: true });
    this.place = element('div', { class: 'view' });
    const title = 'Fill the window; Esc goes back';
    this.fill = element('button', { type: 'button', title, 'aria-pressed': 'false', click: () => this.fillWindow() }, 'Fill');
    this.element = element(
      'article',
      { 'aria-labelledby': id, keydown: (event) => event.key === 'Escape' && this.fillWindow(false) },
      element(
        'div',
        { class: 'title' },
        element('h3', { id }, settings.stream),
        element(
          'div',
          { class: 'choices' },
          choice(
            'view',
            ['auto', ...VIEWS.map(({ word }) => word)].map((word) => [word, word]),
            settings.view,
            (view) => {
              this.settings.view = view;
              // A part of another view is elsewhere.
              this.settings.region = null;
              this.changed();
            },
          ),
          element('button', { type: 'button', title: 'Another panel of this stream', click: page.again }, 'Copy'),
          element('button', { type: 'button', title: 'Save the picture', click: () => this.save(true) }, 'PNG'),
          element('button', { type: 'button', title: 'Save the numbers', click: () => this.save(false) }, 'CSV'),
          this.fill,
          element('button', { type: 'button', 'aria-label': `Close the panel of ${settings.stream}`, click: page.close }, '×'),
        ),
      ),
      this.meta,
      this.fault,
      this.place,
    );
  }

  /** The settings are others now. */
  changed() {
    this.due = 0;
    this.page.changed();
  }

  /**
   * The panel of the request, and its settings as a text.
   * @param {number | null} at
   * @returns {{asked: Asked, settings: string}}
   */
  ask(at) {
    const { stream, view } = this.settings;
    const width = Math.max(50, Math.min(1024, Math.round(this.place.clientWidth * devicePixelRatio)));
    /** @type {Asked} */
    const asked = { stream, view, width, height: width, ...this.view?.ask() };
    const settings = `${at} ${writePanel(this.settings)} ${asked.width}`;
    if (this.known && this.knownFor === settings) asked.known = this.known;
    return { asked, settings };
  }

  /**
   * @param {Answer} answer
   * @param {string} settings with which it was asked
   */
  show(answer, settings) {
    if (answer.same) return;
    const fault = answer.fault ?? answer.unreadable;
    this.fault.hidden = !fault;
    if (fault) setText(this.fault, sentence(fault));
    this.place.hidden = Boolean(answer.fault) && !this.view?.staysOnFault;
    this.meta.hidden = Boolean(answer.fault);
    this.known = '';
    if (answer.fault) return;
    if (this.kind !== answer.view) this.change(answer.view);
    if (!this.view) {
      this.fail(`This page has no view "${answer.view}".`);
      return;
    }
    this.answer = answer;
    this.view.draw(answer);
    this.due = performance.now() + this.view.pause();
    this.known = answer.identity;
    this.knownFor = settings;
    setText(this.meta, describe(answer, this.settings.stream));
  }

  /** @param {boolean} isPicture or numbers */
  save(isPicture) {
    const { stream } = this.settings;
    if (!this.answer || this.place.hidden) return;
    if (isPicture) savePicture(stream, this.meta.textContent ?? '', this.place, this.answer);
    else saveNumbers(stream, this.answer);
  }

  /** Fills the window, or goes back to its place. @param {boolean} [fills] */
  fillWindow(fills = !this.element.classList.contains('whole')) {
    if (fills === this.element.classList.contains('whole')) return;
    this.element.classList.toggle('whole', fills);
    document.body.classList.toggle('filled', fills);
    this.fill.setAttribute('aria-pressed', String(fills));
    this.view?.theme();
    this.changed();
  }

  /** It is time to ask again. */
  isDue() {
    return this.known === '' || performance.now() >= this.due;
  }

  /** @param {string} text why nothing is shown */
  fail(text) {
    this.known = '';
    this.fault.hidden = false;
    setText(this.fault, text);
  }

  /** @param {string} kind */
  change(kind) {
    this.view?.close();
    const known = VIEWS.find(({ word }) => word === kind);
    this.view = known ? new known.View(this.settings, () => this.changed()) : null;
    this.kind = kind;
    this.place.replaceChildren(...(this.view ? [this.view.element] : []));
  }

  /** Dark is light now, or light dark. */
  theme() {
    this.view?.theme();
  }

  close() {
    if (this.element.classList.contains('whole')) document.body.classList.remove('filled');
    this.view?.close();
    this.element.remove();
  }
}

/**
 * The message that is shown.
 * @param {Answer} answer
 * @param {string} stream
 * @returns {string}
 */
function describe(answer, stream) {
  const parts = answer.origin && answer.origin !== stream ? [answer.origin] : [];
  if (answer.schema) parts.push(answer.schema);
  if (answer.sequence !== undefined) parts.push(`message ${answer.sequence}`);
  if (answer.source_time !== undefined) {
    const late = (answer.arrival_time ?? answer.source_time) - answer.source_time;
    const arrived = Math.abs(late) < 1e9 ? '' : `, arrived ${duration(late)} later`;
    parts.push(time(answer.source_time) + arrived);
  }
  return parts.join(' · ');
}
