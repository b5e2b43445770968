// The table of streams: what is in them, what is lost, who reads and how far behind.

import { byId, choice, element, setText, Table } from './dom.js';
import { count, quantity } from './format.js';

/** @typedef {import('./api.js').Stream} Stream */

/** With more streams than this there is a field that filters them, and not all have a row at first. */
const MANY = 20;

/** How rows are sorted; `worst`: results first, then those that lose. @type {[string, string][]} */
const ORDERS = [
  ['worst', 'results, then worst'],
  ['name', 'name'],
  ['messages_per_s', 'messages/s'],
  ['bytes_per_s', 'bytes/s'],
  ['lost', 'lost'],
  ['lag', 'lag'],
  ['fill', 'fill'],
  ['late', 'late'],
];

/** @type {[string, string][]} */
const ROWS = [
  ['20', '20'],
  ['100', '100'],
  ['1000', '1,000'],
];

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
    this.order = 'worst';
    const again = () => this.show(this.streams, this.open);
    this.search = element(
      'div',
      { class: 'tools', hidden: true },
      element('label', {}, 'Only names with ', this.filter),
      choice('sorted by', ORDERS, this.order, (order) => {
        this.order = order;
        again();
      }),
      choice('rows', ROWS, '20', (most) => {
        this.table.most = Number(most);
        again();
      }),
    );
    this.totals = element('p', { class: 'readout' });
    this.table.most = MANY;
    this.empty = element('p', { class: 'muted', hidden: true }, 'This folder has no streams yet.');
    /** @type {Stream[]} */
    this.streams = [];
    /** @type {Set<string>} */
    this.open = new Set();
    byId('streams').append(this.totals, this.search, this.table.element, this.empty);
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
    const { order } = this;
    if (order === 'name') shown.sort((a, b) => (a.name < b.name ? -1 : 1));
    else if (order !== 'worst') shown.sort((a, b) => value(b, order) - value(a, order));
    this.table.show(shown.slice(0, this.table.most).map((stream) => this.row(stream)), shown.length);
    this.totals.hidden = streams.length === 0;
    setText(this.totals, totals(shown));
  }

  /**
   * Streams in the order of what matters: results of workers and merges, then those that lose or have lost most.
   * @param {import('./api.js').Status} status
   */
  ranked({ streams, stages }) {
    const results = new Set(stages.map((row) => row.stage));
    const rank = (/** @type {Stream} */ stream) => [Number(results.has(stream.name)), Number(stream.losing ?? false), stream.lost];
    return [...streams].sort((a, b) => {
      const [x, y] = [rank(a), rank(b)];
      return y[0] - x[0] || y[1] - x[1] || y[2] - x[2] || (a.name < b.name ? -1 : 1);
    });
  }

  /** The row of a stream, also where the filter hid it. @param {string | null} name */
  reveal(name) {
    if (name && !this.table.row(name)) {
      this.filter.value = name;
      this.show(this.streams, this.open);
    }
    return this.table.row(name);
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

/** @param {Stream} stream @param {string} key @returns {number} */
function value(stream, key) {
  return Number(/** @type {Record<string, any>} */ (stream)[key] ?? 0);
}

/** Sums over streams, in words. @param {Stream[]} streams */
function totals(streams) {
  const sum = (/** @type {string} */ key) => streams.reduce((all, stream) => all + value(stream, key), 0);
  const losing = streams.filter((stream) => stream.losing).length;
  const parts = [
    `${count(streams.length)} stream${streams.length === 1 ? '' : 's'}`,
    `${quantity(sum('messages_per_s'), '')} messages/s`,
    quantity(sum('bytes_per_s'), 'B/s'),
    quantity(sum('bytes'), 'B'),
    `${count(sum('lost'))} lost${losing ? ` (${count(losing)} streams lose)` : ''}`,
    `${count(sum('late'))} late`,
  ];
  return parts.join(' · ');
}
