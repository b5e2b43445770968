// A panel: what one stream shows. Its view follows the schema of the answer, unless another one is chosen.

import { sentence } from './api.js';
import { choice, element, setText } from './dom.js';
import { duration, time } from './format.js';
import { ImageView } from './image.js';
import { MessageView } from './message.js';
import { writePanel } from './state.js';
import { TrendView } from './trend.js';

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {import('./api.js').Asked} Asked */
/** @typedef {import('./state.js').Settings} Settings */

/** @type {Record<string, new (settings: Settings, changed: () => void) => ImageView | TrendView | MessageView>} */
const VIEWS = { image: ImageView, trend: TrendView, message: MessageView };

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
    /** @type {ImageView | TrendView | MessageView | null} */
    this.view = null;
    this.kind = '';
    const id = `panel-${(made += 1)}`;
    this.meta = element('p', { class: 'meta muted' });
    this.fault = element('p', { class: 'sentence bad', hidden: true });
    this.place = element('div', { class: 'view' });
    this.element = element(
      'article',
      { 'aria-labelledby': id },
      element(
        'div',
        { class: 'title' },
        element('h3', { id }, settings.stream),
        choice(
          'as',
          [
            ['auto', 'auto'],
            ['image', 'image'],
            ['trend', 'trend'],
            ['message', 'message'],
          ],
          settings.view,
          (view) => {
            this.settings.view = view;
            this.changed();
          },
        ),
        element('button', { type: 'button', title: 'Another panel of this stream', click: page.again }, 'Copy'),
        element('button', { type: 'button', 'aria-label': `Close the panel of ${settings.stream}`, click: page.close }, '×'),
      ),
      this.meta,
      this.fault,
      this.place,
    );
  }

  /** The settings are others now. */
  changed() {
    this.page.changed();
  }

  /**
   * What is asked of the server, and a text that says with what settings.
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
    this.fault.hidden = !answer.fault;
    this.place.hidden = Boolean(answer.fault);
    this.meta.hidden = Boolean(answer.fault);
    this.known = '';
    if (answer.fault) {
      setText(this.fault, sentence(answer.fault));
      return;
    }
    if (this.kind !== answer.view) this.change(answer.view);
    if (!this.view) {
      this.fail(`This page has no view "${answer.view}".`);
      return;
    }
    this.view.draw(answer);
    this.known = answer.identity;
    this.knownFor = settings;
    const origin = answer.origin && answer.origin !== this.settings.stream ? `${answer.origin} · ` : '';
    const late = answer.arrival_time - answer.source_time;
    const arrived = Math.abs(late) < 1e9 ? '' : `, arrived ${duration(late)} later`;
    const text = `${origin}${answer.schema} · message ${answer.sequence} · ${time(answer.source_time)}${arrived}`;
    setText(this.meta, text);
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
    this.view = kind in VIEWS ? new VIEWS[kind](this.settings, () => this.changed()) : null;
    this.kind = kind;
    this.place.replaceChildren(...(this.view ? [this.view.element] : []));
  }

  /** Dark is light now, or light dark. */
  theme() {
    this.view?.theme();
  }

  close() {
    this.view?.close();
    this.element.remove();
  }
}
