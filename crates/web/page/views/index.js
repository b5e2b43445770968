// The views of a panel, a file each; the server has its part of each in `src/look/views`.

import curve from './curve.js';
import events from './events.js';
import groups from './groups.js';
import image from './image.js';
import message from './message.js';
import pixels from './pixels.js';
import spectrum from './spectrum.js';
import trend from './trend.js';

/** @typedef {import('../api.js').Answer} Answer */
/** @typedef {import('../api.js').Asked} Asked */

/**
 * The view of one panel, in `element`. `ask`: its keys of the request. `pause`: how long nothing new
 * is to be seen, ms. `theme`: dark is light now, or light dark. `staysOnFault`: another message can be chosen in it
 * where one cannot be shown.
 * @typedef {{element: HTMLElement, ask(): Partial<Asked> & Record<string, any>, draw(answer: Answer): void,
 *   pause(): number, theme(): void, close(): void, staysOnFault?: boolean}} View
 */

/**
 * @typedef {object} ViewKind
 * @property {string} word of a request and of an answer
 * @property {new (settings: import('../state.js').Settings, changed: () => void) => View} View
 * @property {import('../state.js').Setting[]} [settings] that this view alone has
 */

/** In the order of the choice. @type {ViewKind[]} */
export const VIEWS = [image, events, pixels, curve, spectrum, trend, groups, message];
