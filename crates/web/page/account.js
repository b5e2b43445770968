// "Why is my data missing?": the account of a run or of a stream, its gaps, its files, and the messages set aside.

import { ask } from './api.js';
import { byId, element, setText, Table } from './dom.js';
import { count, duration, quantity, reasons, time } from './format.js';
import { stageRow, sum } from './overview.js';

/** @typedef {import('./api.js').Gap} Gap */
/** @typedef {import('./api.js').Row} Row */
/** @typedef {import('./api.js').Status} Status */

/**
 * @typedef {object} Entry
 * @property {string} stream
 * @property {string} origin
 * @property {number} sent
 * @property {number} appended
 * @property {number} duplicate
 * @property {Record<string, number>} skipped
 * @property {Record<string, number>} lost
 * @property {Record<string, number>} refused
 * @property {boolean} closed
 */

/** @typedef {{stream: string, host: string, sent: ?number, received: number, missing: number}} Mirror */
/**
 * The account of a run on another host of the instrument.
 * @typedef {object} Host
 * @property {string} host
 * @property {'missing' | 'absent' | 'sealed' | 'done'} state
 * @property {?{entries: Entry[], rows: Row[], gaps: Gap[], mirrors?: Mirror[]}} account
 */
/** @typedef {{sink: string, finished: boolean, product: ?{file: string, size: number, blake3: string, files: number, bytes: number}}} File */
/** @typedef {{time: number, reason: string, text: string, stream: string, sequence: number, schema: string, bytes: number}} Aside */

/** Words that need more than themselves. @type {Record<string, string>} */
const MEANING = {
  absent: 'no source ran; how much is missing is not known',
  throttled: 'the sender was asked to pause',
  kernel: 'the kernel dropped it: the buffer of the socket was full',
  network: 'sent, and never received',
  damaged: 'received with a wrong checksum',
  full: 'there was no room in the stream',
  corrupt: 'its bytes do not verify',
  missing: 'its file is gone',
  cut: 'cut by a recovery after a crash',
  late: 'it came behind the seal of its run',
  unexplained: 'a hole in the numbers that no gap explains',
  overflow: 'the queue of the client overwrote it',
};

/** Of a run that goes on. */
const OPEN = 'This run is not sealed yet: its account comes with the seal. Until then the accounts of the streams say what came in.';

/** Of what is empty, or has a damaged index. */
const NONE = 'The index has no message of it, so there is no account: what is missing is not known.';

export class Account {
  /** @param {{go: (at: number) => void}} page chooses the moment */
  constructor(page) {
    this.page = page;
    this.list = element('select', { 'aria-label': 'Account of', change: () => this.ask() });
    this.verdict = element('p', { role: 'status' });
    this.entries = new Table('What came in', [
      ['stream', ''],
      ['origin', ''],
      ['sent', 'number'],
      ['in the stream', 'number'],
      ['duplicate', 'number'],
      ['skipped', ''],
      ['lost', ''],
      ['refused', ''],
      ['account', ''],
    ]);
    this.rows = new Table('What stages did with it', [
      ['stage', ''],
      ['input', ''],
      ['read', 'number'],
      ['done', 'number'],
      ['aside', ''],
      ['skipped', ''],
      ['lost', ''],
      ['not yet', 'number'],
      ['account', ''],
    ]);
    this.mirrors = new Table('What mirrors have', [
      ['stream', ''],
      ['sent', 'number'],
      ['received', 'number'],
      ['missing', 'number'],
    ]);
    this.gaps = new Table('Gaps', [
      ['stream', ''],
      ['reason', ''],
      ['messages', 'number'],
      ['from', ''],
      ['length', 'number'],
      ['origin', ''],
      ['moment', ''],
    ]);
    this.files = new Table('Files', [
      ['sink', ''],
      ['file', 'text'],
      ['size', 'number'],
      ['BLAKE3', 'text'],
    ]);
    this.aside = new Table('Messages aside', [
      ['message', ''],
      ['reason', ''],
      ['time', ''],
      ['schema', ''],
      ['text', ''],
    ]);
    this.tables = [this.files, this.entries, this.mirrors, this.rows, this.gaps, this.aside];
    byId('account').append(
      element('div', { class: 'tools' }, this.list, element('button', { type: 'button', click: () => this.ask() }, 'Refresh')),
      this.verdict,
      ...this.tables.map((table) => table.element),
    );
    this.clear();
    this.options = '';
    /** @type {Status['runs']} */
    this.runs = [];
    /** The path of what is shown. */
    this.shown = '';
    /** Number of the newest question: answers to older ones are not shown. */
    this.newest = 0;
  }

  /** @param {Status} status */
  take({ streams, runs }) {
    this.runs = runs;
    const options = ['', ...runs.map((run) => `runs/${run.name}`).reverse(), ...streams.map((s) => `streams/${s.name}`)];
    const { value } = this.list;
    const lossy = new Set([...runs.filter((run) => run.lost).map((run) => `runs/${run.name}`), ...streams.filter((s) => s.lost > 0).map((s) => `streams/${s.name}`)]);
    const text = (/** @type {string} */ path) =>
      path === '' ? 'choose a run or a stream…' : path.replace('s/', ' ') + (lossy.has(path) ? ' ▲ lost' : '');
    if (String(options.map(text)) === this.options) return;
    this.options = String(options.map(text));
    this.list.replaceChildren(...options.map((path) => element('option', { value: path }, text(path))));
    this.list.value = options.includes(value) ? value : '';
  }

  /** Hides what was shown of another account. */
  clear() {
    for (const table of this.tables) table.element.hidden = true;
  }

  /** Shows the account of this path: `runs/NAME`, `streams/NAME`. @param {string} path */
  choose(path) {
    this.list.value = path;
    this.ask();
    byId('account').focus();
    byId('account').scrollIntoView();
  }

  async ask() {
    const path = this.list.value;
    if (path !== this.shown) {
      this.shown = path;
      this.clear();
      this.say(path === '' ? '' : 'asked…', false);
    }
    this.newest += 1;
    const number = this.newest;
    if (path === '') return;
    try {
      const answer = await ask(`api/${path}`);
      const isRun = path.startsWith('runs/');
      const account = isRun ? answer.account : answer;
      /** @type {Row[]} */
      const rows = isRun ? account.rows : answer.stages;
      const stages = isRun ? [...new Set(rows.map((row) => row.stage))] : [path.slice('streams/'.length)];
      /** @type {Aside[]} */
      const aside = (await Promise.all(stages.map((stage) => ask(`api/aside/${encodeURIComponent(stage)}`)))).flat();
      if (number !== this.newest) return;
      this.show(withHosts(isRun ? account : { ...answer, rows }), answer.more, answer.files ?? [], aside);
      if (isRun && account.state !== 'sealed') this.say(OPEN, false);
    } catch (error) {
      if (number !== this.newest) return;
      this.clear();
      this.say(error instanceof Error ? error.message : String(error), true);
    }
  }

  /**
   * @param {OfAll} ofAll
   * @param {number} more
   * @param {File[]} files
   * @param {Aside[]} aside
   */
  show({ entries, rows, gaps, mirrors, hosts }, more, files, aside) {
    const missing = mirrors.reduce((all, row) => all + row.missing, 0);
    const lost = [...entries, ...rows].reduce((all, row) => all + sum(row.lost), missing);
    const moved = rows.reduce((all, row) => all + sum(row.aside), 0);
    const silent = hosts.filter((host) => host.account === null);
    const unknown = mirrors.filter((row) => row.sent === null).length;
    const open = [...entries, ...rows].filter((row) => !row.closed).length + unknown;
    const isEmpty = entries.length + rows.length === 0;
    const first = lost === 0 ? 'Nothing is lost.' : `▲ ${count(lost)} messages are lost.`;
    const words = [isEmpty ? NONE : first];
    if (moved > 0) words.push(`${count(moved)} ${moved === 1 ? 'message was' : 'messages were'} moved aside: see below for the reasons.`);
    if (!isEmpty) words.push(open === 0 ? 'Every account closes.' : `▲ ${count(open)} accounts do not close: some messages cannot be explained.`);
    for (const { host, state } of silent) {
      words.push(state === 'absent' ? `▲ The run was sealed without host ${host}.` : `▲ Host ${host} has not sent its account yet.`);
    }
    if (more > 0) words.push(`${count(more)} older gaps are not listed.`);
    const run = this.runs.find((one) => this.shown === `runs/${one.name}`);
    if (run) words.push('What came in is counted until the run was sealed, also what arrived while it settled; stages have the messages of its time.');
    words.push('What was damaged since, `beamport verify` finds.');
    words.push(`As of ${time(Date.now() * 1e6).slice(11, 19)} UTC.`);
    this.say(words.join(' '), lost > 0 || open > 0 || silent.length > 0);
    const lossy = [...entries].sort((a, b) => sum(b.lost) - sum(a.lost));
    this.fill(this.entries, lossy, (row) => ({
      key: `${row.stream} ${row.origin}`,
      cells: [
        row.stream,
        row.origin || '(not in the stream any more)',
        count(row.sent),
        count(row.appended),
        count(row.duplicate),
        reasons(row.skipped),
        reasons(row.lost),
        reasons(row.refused),
        row.closed ? 'closed' : 'not closed',
      ],
      bad: [false, false, false, false, false, false, sum(row.lost) > 0, false, !row.closed],
    }));
    this.fill(this.mirrors, mirrors, (row) => ({
      key: row.stream,
      cells: [row.stream, row.sent === null ? 'unknown' : count(row.sent), count(row.received), count(row.missing)],
      bad: [false, row.sent === null, false, row.missing > 0],
    }));
    this.fill(this.rows, rows, stageRow);
    this.fill(this.gaps, [...gaps].reverse(), (gap) => ({
      key: `${gap.stream} ${gap.origin} ${gap.reason} ${gap.first} ${gap.from}`,
      cells: [
        gap.stream,
        MEANING[word(gap.reason)] ? `${gap.reason}: ${MEANING[word(gap.reason)]}` : gap.reason,
        gap.last < gap.first ? 'unknown' : count(gap.count || gap.last - gap.first + 1),
        time(gap.from) + (run && gap.from >= (run.stop ?? Infinity) ? ', after the run' : run && gap.to < run.start ? ', before the run' : ''),
        duration(gap.to - gap.from),
        gap.origin || '-',
        element('button', { type: 'button', click: () => this.page.go(gap.from) }, 'Show'),
      ],
    }));
    this.fill(this.files, files, ({ sink, finished, product }) => {
      const name = product?.file ?? '-';
      const lists = product && product.bytes !== product.size ? `, the list of ${count(product.files)} files (${quantity(product.bytes, 'B')})` : '';
      return {
        key: sink,
        cells: [sink, `${name}${lists}${finished ? '' : ' (not finished)'}`, quantity(product?.size, 'B'), product?.blake3 ?? '-'],
      };
    });
    this.fill(this.aside, aside, (row) => ({
      key: `${row.stream} ${row.sequence} ${row.time} ${row.reason}`,
      cells: [
        `${row.stream} ${count(row.sequence)}`,
        row.reason,
        time(row.time),
        row.schema || '-',
        element('details', {}, element('summary', {}, row.text.trim().split('\n').pop() || '-'), element('pre', {}, row.text)),
      ],
    }));
  }

  /** @param {string} text @param {boolean} isBad */
  say(text, isBad) {
    setText(this.verdict, text);
    this.verdict.classList.toggle('bad', isBad);
  }

  /**
   * @template T
   * @param {Table} table
   * @param {T[]} rows
   * @param {(row: T) => {key: string, cells: (string | Node)[], bad?: boolean[]}} row
   */
  fill(table, rows, row) {
    table.element.hidden = rows.length === 0;
    table.show(rows.map(row));
  }
}

/** @typedef {{entries: Entry[], rows: Row[], gaps: Gap[], mirrors: Mirror[], hosts: Host[]}} OfAll */

/**
 * An account with those of the other hosts, whose names stand behind the streams and stages.
 * @param {{entries: Entry[], rows: Row[], gaps: Gap[], mirrors?: Mirror[], hosts?: Host[]}} account
 * @returns {OfAll}
 */
function withHosts({ entries, rows, gaps, mirrors = [], hosts = [] }) {
  const all = { entries: [...entries], rows: [...rows], gaps: [...gaps], mirrors: [...mirrors], hosts };
  for (const { host, account } of hosts) {
    const at = (/** @type {string} */ name) => `${name} (host ${host})`;
    all.entries.push(...(account?.entries ?? []).map((row) => ({ ...row, stream: at(row.stream) })));
    all.rows.push(...(account?.rows ?? []).map((row) => ({ ...row, stage: at(row.stage) })));
    all.gaps.push(...(account?.gaps ?? []).map((gap) => ({ ...gap, stream: at(gap.stream) })));
    all.mirrors.push(...(account?.mirrors ?? []).map((row) => ({ ...row, stream: at(row.stream) })));
  }
  return all;
}

/** The word of a reason, without its prefix. @param {string} reason */
function word(reason) {
  return reason.replace(/^(lost|skipped|refused)\./, '');
}
