// Workers, runs, accounts of stages, faults: the tables below the panels.

import { byId, element, setText, Table } from './dom.js';
import { count, duration, fields, quantity, reasons, time } from './format.js';

/** @typedef {import('./api.js').Status} Status */

/** @param {Record<string, number>} counts */
export const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

/**
 * The account of a stage as a row: stage, input, read, done, aside, skipped, lost, held, and whether it closes.
 * @param {import('./api.js').Row} row
 */
export function stageRow(row) {
  return {
    key: `${row.stage} ${row.stream}`,
    cells: [
      row.stage,
      row.stream,
      count(row.read),
      count(row.done),
      reasons(row.aside),
      reasons(row.skipped),
      reasons(row.lost),
      count(row.held),
      row.closed ? 'closed' : 'not closed',
    ],
    bad: at({ 4: sum(row.aside) > 0, 6: sum(row.lost) > 0, 8: !row.closed }),
  };
}

export class Overview {
  /** @param {(path: string) => void} account shows the account of `runs/NAME` */
  constructor(account) {
    this.account = account;
    /** @type {Map<string, HTMLButtonElement>} */
    this.buttons = new Map();
    this.workers = new Table('Workers', [
      ['worker', ''],
      ['code', ''],
      ['slots', ''],
      ['messages', 'number'],
      ['messages/s', 'number'],
      ['lag', 'number'],
      ['aside', 'number'],
      ['filtered', 'number'],
      ['lost', 'number'],
      ['restarts', 'number'],
    ]);
    this.slots = new Table('What the code of each slot says', [
      ['slot', ''],
      ['statistics', ''],
    ]);
    this.runs = new Table(
      'Runs, newest first',
      [
        ['run', ''],
        ['state', ''],
        ['start (UTC)', ''],
        ['duration', 'number'],
        ['messages', 'number'],
        ['bytes', 'number'],
        ['lost', 'number'],
        ['late', 'number'],
        ['account', ''],
        ['files', ''],
      ],
      50,
    );
    this.accounts = new Table('Accounts of stages', [
      ['stage', ''],
      ['input', ''],
      ['read', 'number'],
      ['done', 'number'],
      ['aside', 'number'],
      ['skipped', 'number'],
      ['lost', 'number'],
      ['held', 'number'],
      ['account', ''],
    ]);
    this.hosts = new Table('Hosts', [
      ['host', ''],
      ['state', ''],
      ['mirrors behind', ''],
      ['workers', ''],
      ['lost', 'number'],
      ['clock', 'number'],
      ['faults', ''],
    ]);
    this.missing = element('ul');
    this.running = new Table('Stages of the running instrument', [
      ['stage', ''],
      ['kind', ''],
      ['status', ''],
      ['fault', ''],
    ]);
    byId('hosts').append(this.hosts.element);
    byId('workers').append(this.workers.element, this.slots.element);
    byId('runs').append(this.runs.element);
    byId('accounts').append(this.accounts.element, this.missing);
    byId('running').append(this.running.element);
  }

  /** The row of a table. @param {string} section @param {string | null} key */
  row(section, key) {
    const tables = /** @type {Record<string, Table>} */ ({ workers: this.workers, runs: this.runs, hosts: this.hosts });
    return tables[section]?.row(key) ?? null;
  }

  /** @param {Status} status */
  show(status) {
    this.showFaults(status);
    this.showHosts(status);
    this.showWorkers(status);
    this.showRuns(status);
    this.showAccounts(status);
    this.showRunning(status);
  }

  /** @param {Status} status */
  showFaults(status) {
    const texts = [
      ...status.troubles,
      ...status.unreadable.map(({ name, why }) => `The stream ${name} cannot be read: ${why}`),
      ...status.damaged.map(({ book, first, last, why }) => `Messages ${first} to ${last} of ${book} cannot be read: ${why}`),
      ...status.streams.filter((s) => s.orphaned).map((s) => `The writer of ${s.name} ended; the next one recovers it.`),
      ...status.streams.flatMap((s) =>
        s.readers
          .filter((reader) => reader.gone)
          .map((reader) => `${s.name} waits for reader ${reader.name}, whose process has ended (${reader.lag} messages).`),
      ),
      ...status.streams
        .filter((s) => s.elsewhere)
        .map((s) => `The messages of ${s.name} are in the /dev/shm of another container: they cannot be read here.`),
    ];
    showList(byId('troubles'), byId('troubles').querySelector('ul'), texts);
  }

  /** @param {Status} status */
  showHosts({ hosts }) {
    const all = Object.entries(hosts);
    byId('hosts').hidden = all.length === 0;
    this.hosts.show(
      all.map(([name, host]) => {
        // Which host waits for which: the stream and where it comes from.
        const behind = host.mirrors.filter((mirror) => mirror.lag === null || mirror.lag > 0);
        const lags = behind.map(({ stream, of, lag }) => `${stream} of ${of}: ${lag === null ? 'unknown' : count(lag)}`);
        const workers = Object.entries(host.workers ?? {}).map(
          ([worker, { numbers }]) => `${worker}: ${numbers.living} of ${numbers.slots} slots, ${count(numbers.messages)} messages`,
        );
        const clock = host.clock_ns === null ? '-' : `${(host.clock_ns / 1e9).toFixed(1)} s`;
        const faults = (host.troubles ?? []).join('; ');
        return {
          key: name,
          cells: [name, host.state, lags.join(', ') || '-', workers.join(', ') || '-', count(host.lost), clock, faults || '-'],
          bad: at({ 1: host.state === 'away', 4: (host.lost ?? 0) > 0, 6: faults !== '' }),
        };
      }),
    );
  }

  /** @param {Status} status */
  showWorkers({ workers, running }) {
    byId('workers').hidden = workers.length === 0;
    this.workers.show(
      workers.map((worker) => {
        const slots = [`${worker.living} of ${worker.slots}`];
        if (worker.starting) slots.push(`${worker.starting} starting`);
        if (worker.away) slots.push(`${worker.away} away`);
        if (running[worker.name]?.paused) slots.push('paused');
        const shadow = worker.shadow ? `, shadow of ${worker.shadow}` : '';
        return {
          key: worker.name,
          cells: [
            worker.name,
            (worker.call || '-') + shadow,
            slots.join(', '),
            count(worker.messages),
            quantity(worker.messages_per_s, ''),
            count(worker.lag),
            count(worker.aside),
            count(worker.filtered),
            count(worker.lost),
            count(worker.restarts),
          ],
          bad: at({ 2: worker.away > 0, 6: worker.aside > 0, 8: worker.lost > 0 }),
        };
      }),
    );
    const slots = workers.flatMap((worker) =>
      Object.entries(worker.statistics).map(([slot, values]) => ({
        key: `${worker.name} ${slot}`,
        cells: [`${worker.name} ${slot}`, fields(values)],
      })),
    );
    this.slots.element.hidden = slots.length === 0;
    this.slots.show(slots);
  }

  /** @param {Status} status */
  showRuns({ runs, time: now }) {
    byId('runs').hidden = runs.length === 0;
    this.runs.show(
      [...runs].reverse().map((run) => {
        let account = run.closed === null ? '-' : run.closed ? 'closed' : 'not closed';
        if (run.state !== 'sealed') account = 'so far';
        if (run.absent.length > 0) account += `, ${count(run.absent.length)} times without a source`;
        if (run.trouble) account += `, ${run.trouble}`;
        return {
          key: run.name,
          cells: [
            this.button(run.name),
            run.reason ? `${run.state} (${run.reason})` : run.state,
            time(run.start),
            duration((run.stop ?? now) - run.start),
            count(run.messages),
            quantity(run.bytes, 'B'),
            count(run.lost),
            count(run.late),
            account,
            run.files.join(', ') || '-',
          ],
          bad: at({ 6: (run.lost ?? 0) > 0, 8: run.trouble !== null || (run.state === 'sealed' && run.closed === false) }),
        };
      }),
    );
  }

  /** The name of a run, which leads to its account. @param {string} run */
  button(run) {
    let button = this.buttons.get(run);
    if (!button) {
      const title = `the account of run ${run}`;
      button = element('button', { type: 'button', title, click: () => this.account(`runs/${run}`) }, run);
      this.buttons.set(run, button);
    }
    return button;
  }

  /** @param {Status} status */
  showAccounts({ stages, missing }) {
    byId('accounts').hidden = stages.length === 0 && missing.length === 0;
    this.accounts.show(stages.map(stageRow));
    const texts = missing.map(
      (one) => `${one.stage}: ${count(one.missing)} ids without any message, ${count(one.incomplete)} incomplete.`,
    );
    showList(this.missing, this.missing, texts);
  }

  /** @param {Status} status */
  showRunning({ running }) {
    const stages = Object.entries(running);
    byId('running').hidden = stages.length === 0;
    this.running.show(
      stages.map(([name, stage]) => ({
        key: name,
        cells: [name, stage.kind, fields(stage.status ?? {}), stage.trouble ?? '-'],
        bad: at({ 3: stage.trouble !== null }),
      })),
    );
  }
}

/**
 * Flags by column.
 * @param {Record<number, boolean>} flags
 * @returns {boolean[]}
 */
function at(flags) {
  return Array.from({ length: 10 }, (_, i) => flags[i] ?? false);
}

/**
 * Shows texts as items of a list, and nothing where there are none.
 * @param {HTMLElement} around
 * @param {HTMLElement | null} list
 * @param {string[]} texts
 */
function showList(around, list, texts) {
  around.hidden = texts.length === 0;
  if (!list) return;
  while (list.children.length > texts.length) list.lastElementChild?.remove();
  for (const [i, text] of texts.entries()) {
    if (!list.children[i]) list.append(element('li'));
    setText(list.children[i], text);
  }
}
