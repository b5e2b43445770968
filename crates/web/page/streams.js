// The table of streams: what is in them, what is lost, who reads and how far behind.

import { byId, element, setText, Table } from './dom.js';
import { count, quantity } from './format.js';

/** @typedef {import('./api.js').Stream} Stream */

/** With more streams than this there is a field that filters them. */
const MANY = 20;

export class Streams {
  /**
   * @param {(stream: string) => void} toggle opens or closes the panels of a stream
   * @param {(path: string) => void} account shows the account of `streams/NAME`
   */
  constructor(toggle, account) {
    this.toggle = toggle;
    this.account = account;
    /** The losses of a stream lead to its account. @type {Map<string, HTMLButtonElement>} */
    this.losses = new Map();
    /** @type {Map<string, HTMLButtonElement>} */
    this.buttons = new Map();
    this.table = new Table('Streams', [
      ['stream', ''],
      ['messages', 'number'],
      ['messages/s', 'number'],
      ['bytes', 'number'],
      ['bytes/s', 'number'],
      ['lost', 'number'],
      ['lag', 'number'],
      ['fill', 'number'],
      ['late', 'number'],
      ['readers', ''],
    ]);
    this.filter = element('input', { type: 'search', input: () => this.show(this.streams, this.open) });
    this.search = element('p', { hidden: true }, element('label', {}, 'Only names with ', this.filter));
    this.empty = element('p', { class: 'muted', hidden: true }, 'This folder has no streams yet.');
    /** @type {Stream[]} */
    this.streams = [];
    /** @type {Set<string>} */
    this.open = new Set();
    byId('streams').append(this.search, this.table.element, this.empty);
  }

  /**
   * @param {Stream[]} streams
   * @param {Set<string>} open names of those that have a panel
   */
  show(streams, open) {
    this.streams = streams;
    this.open = open;
    this.search.hidden = streams.length <= MANY;
    this.empty.hidden = streams.length > 0;
    this.table.element.hidden = streams.length === 0;
    const word = this.search.hidden ? '' : this.filter.value.toLowerCase();
    const shown = streams.filter((stream) => stream.name.toLowerCase().includes(word));
    this.table.show(shown.map((stream) => this.row(stream)));
  }

  /** @param {Stream} stream */
  row(stream) {
    let button = this.buttons.get(stream.name);
    if (!button) {
      const title = `show or hide the panel of ${stream.name}`;
      button = element('button', { type: 'button', title, click: () => this.toggle(stream.name) }, stream.name);
      this.buttons.set(stream.name, button);
    }
    button.setAttribute('aria-pressed', String(this.open.has(stream.name)));
    let loss = this.losses.get(stream.name);
    if (!loss) {
      loss = element('button', { type: 'button', class: 'bad', click: () => this.account(`streams/${stream.name}`) });
      this.losses.set(stream.name, loss);
    }
    setText(loss, `▲ ${count(stream.lost)}`);
    loss.title = `why messages of ${stream.name} are missing`;
    const lags = stream.readers.filter((reader) => reader.name).map((reader) => {
      const { name } = reader;
      if (/^(view|keeps) /.test(name)) return `${name} (${count(reader.lag)} kept)`;
      const away = reader.pid === null && reader.kind === 'counted' ? ', not running' : '';
      return reader.lag === null ? name : `${name} (lag ${count(reader.lag)}${away})`;
    });
    const anonymous = stream.readers.filter((reader) => !reader.name).length;
    if (anonymous > 0) lags.push(`${anonymous} anonymous`);
    const cells = [
      button,
      count(stream.messages),
      quantity(stream.messages_per_s, ''),
      quantity(stream.bytes, 'B'),
      quantity(stream.bytes_per_s, 'B/s'),
      stream.lost > 0 ? loss : '0',
      count(stream.lag),
      `${(stream.fill * 100).toFixed(0)} %`,
      count(stream.late),
      lags.join(', ') || '-',
    ];
    const bad = Array(cells.length).fill(false);
    bad[7] = stream.fill >= 0.9;
    return { key: stream.name, cells, bad };
  }

  /** @param {Set<string>} open */
  mark(open) {
    this.open = open;
    for (const [name, button] of this.buttons) button.setAttribute('aria-pressed', String(open.has(name)));
  }
}
