// Commands: each is shown as it will be sent, is confirmed, and its answer is shown. The record of all commands, and the
// instrument file.

import { ask, sentence } from './api.js';
import { byId, element, setText, Table } from './dom.js';
import { time } from './format.js';

/** @typedef {import('./api.js').Status} Status */

/** @typedef {{time: number, command: string, arguments: any, from: string, answer: any}} Record_ */

/** A cut-over loads code and finishes what is under way, ms. */
const PATIENCE = 620e3;

export class Control {
  constructor() {
    const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => element('label', {}, `${label} `, input);
    const form = (/** @type {string} */ text, /** @type {() => object} */ command, /** @type {HTMLElement[]} */ ...fields) =>
      element(
        'form',
        {
          class: 'tools',
          submit: (event) => {
            event.preventDefault();
            this.confirm(command);
          },
        },
        ...fields,
        element('button', { type: 'submit' }, text),
      );
    /** @type {Status['workers']} */
    this.workers = [];
    this.run = element('input', { size: 16, placeholder: 'the next number', pattern: '[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}', title: 'At most 64 letters, digits, _ and -; the first is a letter or a digit.' });
    this.title = element('input', { size: 24 });
    this.open = element('select');
    this.worker = element('select');
    this.parameters = element('input', { size: 24, placeholder: '{"threshold": 3}' });
    this.slots = element('input', { type: 'number', min: 1, max: 32 });
    this.shadow = element('select');
    this.begin = form(
      'Begin',
      () => ({
        command: 'begin',
        ...(this.run.value && { run: this.run.value }),
        ...(this.title.value && { metadata: { title: this.title.value } }),
      }),
      field('run', this.run),
      field('title', this.title),
    );
    this.end = form('End', () => ({ command: 'end', run: this.open.value }), field('open run', this.open));
    this.configure = form(
      'Configure',
      () => ({
        command: 'configure',
        worker: this.worker.value,
        ...(this.parameters.value && { parameters: JSON.parse(this.parameters.value) }),
        ...(this.slots.value && { slots: Number(this.slots.value) }),
      }),
      field('worker', this.worker),
      field('parameters (JSON)', this.parameters),
      field('slots', this.slots),
    );
    this.cutover = form('Cut over', () => ({ command: 'cutover', shadow: this.shadow.value }), field('shadow', this.shadow));
    this.answer = element('p', { role: 'status', class: 'readout' });
    this.effect = element('p');
    this.question = element('pre');
    this.dialog = element(
      'dialog',
      { 'aria-labelledby': 'confirm-title' },
      element('h2', { id: 'confirm-title' }, 'Send this command?'),
      this.effect,
      this.question,
      element(
        'form',
        { method: 'dialog', class: 'tools' },
        element('button', { value: 'no' }, 'Cancel'),
        element('button', { value: 'yes' }, 'Send'),
      ),
    );
    this.table = new Table('Commands', [
      ['time', ''],
      ['command', ''],
      ['arguments', 'text'],
      ['by', 'text'],
      ['answer', 'text'],
    ]);
    const record = element('details', { toggle: () => record.open && this.askRecord() }, element('summary', {}, 'Commands so far'), this.table.element);
    this.record = record;
    this.file = element('pre', { class: 'scroll', tabindex: 0 });
    const settings = element('details', { toggle: () => settings.open && this.askFile() }, element('summary', {}, 'Instrument file'), this.file);
    this.forms = element('div', { input: () => setText(this.answer, '') }, this.begin, this.end, this.configure, this.cutover);
    this.none = element('p', { hidden: true });
    byId('control').append(this.none, this.forms, this.answer, record, settings, this.dialog);
  }

  /** @param {Status} status */
  take({ runs, workers, running, web }) {
    const runs_ = Object.keys(running).length > 0;
    const mayLook = 'The token of this page allows looking only. The URL that `beamport up` prints has the one for commands.';
    const why = web?.role !== 'control' ? mayLook : runs_ ? '' : 'No instrument runs: there is none to command.';
    this.forms.hidden = why !== '';
    this.none.hidden = why === '';
    setText(this.none, why);
    fill(this.open, runs.filter((run) => run.state === 'open').map((run) => run.name));
    fill(this.worker, workers.filter((worker) => !worker.shadow).map((worker) => worker.name));
    fill(this.shadow, workers.filter((worker) => worker.shadow).map((worker) => worker.name));
    this.workers = workers;
    this.end.hidden = this.open.options.length === 0;
    this.configure.hidden = this.worker.options.length === 0;
    this.cutover.hidden = this.shadow.options.length === 0;
  }

  /** The effect of a command; empty: none. @param {any} command */
  effectOf(command) {
    switch (command.command) {
      case 'begin':
        return command.run ? `Begin run ${command.run} now.` : 'Begin the next run now.';
      case 'end':
        return `End run ${command.run} now.`;
      case 'cutover': {
        const { shadow, call } = this.workers.find((worker) => worker.name === command.shadow) ?? {};
        return `Worker ${shadow} runs the code of its shadow ${command.shadow} (${call}) from then on. To compare their outputs before: beamport compare ${shadow} ${command.shadow}`;
      }
      default: {
        const parts = assignments(command.parameters);
        if (command.slots) parts.push(`${command.slots} slots`);
        return parts.length === 0 ? '' : `Change worker ${command.worker}: ${parts.join(', ')}.`;
      }
    }
  }

  /** Shows a command, and sends it where that is wanted. @param {() => object} make */
  async confirm(make) {
    let command;
    try {
      command = make();
    } catch (error) {
      setText(this.answer, `▲ The parameters are not JSON: ${error}`);
      return;
    }
    const effect = this.effectOf(command);
    if (effect === '') {
      setText(this.answer, '▲ Nothing would change: give parameters or a number of slots.');
      return;
    }
    setText(this.effect, effect);
    setText(this.question, JSON.stringify(command, null, 2));
    this.dialog.returnValue = 'no';
    this.dialog.showModal();
    await new Promise((resolve) => this.dialog.addEventListener('close', resolve, { once: true }));
    if (this.dialog.returnValue !== 'yes') return;
    setText(this.answer, 'sent…');
    try {
      const { ok, fault } = await ask('api/command', command, PATIENCE);
      setText(this.answer, fault ? `▲ ${sentence(fault)}` : `done: ${brief(ok)}`);
    } catch (error) {
      setText(this.answer, `▲ ${error instanceof Error ? error.message : error}`);
    }
    if (this.record.open) this.askRecord();
  }

  async askRecord() {
    try {
      /** @type {Record_[]} */
      const rows = await ask('api/control');
      this.table.show(
        rows.map((row) => ({
          key: `${row.time} ${row.command}`,
          cells: [time(row.time), row.command, JSON.stringify(row.arguments), row.from, brief(row.answer)],
        })),
      );
    } catch (error) {
      setText(this.answer, `▲ ${error instanceof Error ? error.message : error}`);
    }
  }

  async askFile() {
    try {
      const { file } = await ask('api/settings');
      setText(this.file, file ?? 'No instrument has run in this folder.');
    } catch (error) {
      setText(this.file, error instanceof Error ? error.message : String(error));
    }
  }
}

/**
 * The options of a list; what was chosen stays.
 * @param {HTMLSelectElement} list
 * @param {string[]} values
 */
function fill(list, values) {
  if (String([...list.options].map((option) => option.value)) === String(values)) return;
  const { value } = list;
  list.replaceChildren(...values.map((name) => element('option', { value: name }, name)));
  if (values.includes(value)) list.value = value;
}

/** Parameters of a worker as `name=value`. @param {?Record<string, unknown>} [parameters] */
function assignments(parameters) {
  return Object.entries(parameters ?? {}).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
}

/** An answer in sentences. @param {any} answer */
function brief(answer) {
  if (answer?.name && answer?.state) return `run ${answer.name} is ${answer.state}`;
  if (answer?.fault) return `▲ ${typeof answer.fault === 'string' ? answer.fault : sentence(answer.fault)}`;
  if (answer?.worker && answer.from) {
    const from = answer.from.map((/** @type {any} */ one) => `message ${one.sequence} of ${one.stream}`).join(', ');
    const { compared } = answer;
    const before = compared?.fault ?? (compared && `${compared.same} outputs were the same, ${compared.different} different`);
    const rest = `which is from message ${answer.output} of ${answer.worker} on; it stays so until [worker.${answer.worker}] in the instrument file is changed`;
    return `worker ${answer.worker} now runs ${answer.code?.call} from ${from} on, ${rest}${before ? ` (before: ${before})` : ''}`;
  }
  if (answer?.worker) {
    const slots = answer.slots === 1 ? '1 slot' : `${answer.slots} slots`;
    return `worker ${answer.worker} has ${slots}: ${assignments(answer.parameters).join(' ') || 'no parameters'}`;
  }
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
