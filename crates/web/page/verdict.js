// The line that says how it is: what is measured, and what is wrong. The server makes its words; each part leads to what
// it speaks of.

import { element, setText } from './dom.js';

/** @typedef {import('./api.js').Part} Part */

/** The section that a part leads to. @type {Record<string, string>} */
const SECTIONS = {
  state: 'runs',
  fault: 'troubles',
  loss: 'streams',
  restart: 'workers',
  aside: 'workers',
  alarm: 'panels',
  paused: 'workers',
  host: 'hosts',
  account: 'runs',
};

export class Verdict {
  /**
   * @param {HTMLElement} place
   * @param {(section: string, part: Part) => void} go shows what a part speaks of
   */
  constructor(place, go) {
    this.place = place;
    this.go = go;
    /** The links by kind: one that has the focus keeps it. @type {Map<string, {link: HTMLAnchorElement, part: Part}>} */
    this.links = new Map();
  }

  /**
   * @param {Part[]} parts
   * @param {string} more what the first one says besides
   */
  show(parts, more) {
    for (const [kind, { link }] of this.links) {
      if (parts.some((part) => part.kind === kind)) continue;
      link.parentElement?.remove();
      this.links.delete(kind);
    }
    for (const [i, part] of parts.entries()) {
      const section = SECTIONS[part.kind] ?? 'streams';
      let known = this.links.get(part.kind);
      if (!known) {
        const click = (/** @type {MouseEvent} */ event) => {
          // The hash is the state of the page.
          event.preventDefault();
          this.go(section, this.links.get(part.kind)?.part ?? part);
        };
        const link = element('a', { href: `#${section}`, click });
        element('span', {}, link);
        known = { link, part };
        this.links.set(part.kind, known);
      }
      known.part = part;
      const around = known.link.parentElement;
      if (around && this.place.children[i] !== around) this.place.insertBefore(around, this.place.children[i] ?? null);
      setText(known.link, (part.bad ? '▲ ' : '') + part.text + (i === 0 ? more : ''));
      known.link.classList.toggle('bad', part.bad);
    }
  }
}
