// The interface of the server: docs/reference/web.md.

/** @typedef {{what: string, cause: string, hint: string}} Fault */

/**
 * @typedef {object} Reader
 * @property {string} name
 * @property {string} kind
 * @property {number | null} lag
 * @property {number | null} pid
 * @property {boolean} [gone]
 */

/**
 * @typedef {object} Stream
 * @property {string} name
 * @property {string} level
 * @property {number} messages
 * @property {number} bytes
 * @property {number | null} messages_per_s
 * @property {number | null} bytes_per_s
 * @property {number} lost
 * @property {boolean} [losing]
 * @property {number} lag
 * @property {number} fill
 * @property {number} late
 * @property {number | null} writer
 * @property {boolean} orphaned
 * @property {boolean} [elsewhere]
 * @property {Reader[]} readers
 */

/**
 * @typedef {object} Worker
 * @property {string} name
 * @property {number} slots
 * @property {number} living
 * @property {number} starting
 * @property {number} away
 * @property {number} restarts
 * @property {number} messages
 * @property {number | null} messages_per_s
 * @property {number} lag
 * @property {number} aside
 * @property {number} filtered
 * @property {number} lost
 * @property {string} call
 * @property {string | null} shadow
 * @property {Record<string, Record<string, any>>} statistics
 */

/** @typedef {{stream: string, origin: string, first: number, last: number, from: number, to: number, reason: string, count: number}} Gap */

/**
 * @typedef {object} Run
 * @property {string} name
 * @property {string} state
 * @property {number} start
 * @property {number | null} stop
 * @property {number | null} messages
 * @property {number | null} bytes
 * @property {string[]} files
 * @property {boolean | null} closed
 * @property {number | null} lost
 * @property {number} late
 * @property {Gap[]} absent
 * @property {string} reason
 * @property {string | null} trouble
 */

/**
 * @typedef {object} Row
 * @property {string} stage
 * @property {string} stream
 * @property {number} read
 * @property {number} done
 * @property {Record<string, number>} aside
 * @property {Record<string, number>} skipped
 * @property {Record<string, number>} lost
 * @property {number} held
 * @property {boolean} closed
 */

/**
 * A part of the line that says how it is.
 * @typedef {object} Part
 * @property {string} kind
 * @property {string} text
 * @property {number} count
 * @property {string | null} subject
 * @property {string | null} origin
 * @property {boolean} bad
 */

/**
 * @typedef {object} Status
 * @property {number} time
 * @property {string} data
 * @property {Stream[]} streams
 * @property {Worker[]} workers
 * @property {Run[]} runs
 * @property {Row[]} stages
 * @property {{stage: string, missing: number, incomplete: number}[]} missing
 * @property {{name: string, why: string}[]} unreadable
 * @property {{book: string, first: number, last: number, why: string}[]} damaged
 * @property {string[]} troubles
 * @property {Record<string, {kind: string, status: Record<string, any> | null, trouble: string | null, paused?: boolean}>} running
 * @property {Record<string, HostState>} hosts
 * @property {Part[]} verdict
 * @property {{pid: number, role: string}} web
 */

/**
 * The newest beat of a host of the instrument.
 * @typedef {object} HostState
 * @property {string} state up, ended or away
 * @property {{stream: string, of: string, lag: number | null}[]} mirrors
 * @property {Record<string, {numbers: Record<string, number>}> | null} workers
 * @property {number | null} lost
 * @property {number | null} clock_ns
 * @property {string[] | null} troubles
 */

/**
 * A panel of a request; a view may ask with keys of its own.
 * @typedef {object} Asked
 * @property {string} stream
 * @property {string} view
 * @property {number} width
 * @property {number} height
 * @property {number[]} [region]
 * @property {string} [reduce]
 * @property {number} [window]
 * @property {string} [origin]
 * @property {string} [search]
 * @property {number} [sequence]
 * @property {number} [step]
 * @property {string} [known]
 */

/** @typedef {Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | Float32Array | Float64Array} Numbers */
/** @typedef {{shape: number[], values: Numbers}} Values */
/** @typedef {{origin: string, count: number, last: number | string | null, last_time: number | null, unit: string | null, before?: number | string | null, alarms?: Alarm[], lost?: Alarm[]}} Series */
/** @typedef {{from: number, to: number | null, severity?: string, message?: string, status?: string}} Alarm */

/** @typedef {{from: number, origin: string, severity?: string, message?: string, first?: number, last?: number, reason?: string}} Found a gap or an alarm */
/** @typedef {{name: string | null, label?: string | null, unit: string | null, edges: boolean}} Axis */

/**
 * An answer; keys that its view does not have are undefined.
 * @typedef {object} Answer
 * @property {Fault} [fault]
 * @property {Fault} [unreadable] messages that are left out of what is shown
 * @property {boolean} [same]
 * @property {string} view
 * @property {string} identity
 * @property {string} [schema] of one message, as the next four
 * @property {number} [sequence]
 * @property {number} [source_time]
 * @property {number} [arrival_time]
 * @property {string} [origin]
 * @property {number[]} shape
 * @property {number[]} region
 * @property {number} [planes]
 * @property {number} messages
 * @property {number} events
 * @property {number} outside
 * @property {number} first_pixel of `events`: the lowest number
 * @property {[number, number, number] | null} [numbers] of `events`: that at the top left, and how much it rises from row
 *   to row and from column to column
 * @property {string | null} unit
 * @property {Axis} axis of a curve
 * @property {[Axis, Axis]} [axes] of an image: rows and columns
 * @property {number} from
 * @property {number} to
 * @property {number | null} earliest of `times`, as the next
 * @property {number | null} arrived
 * @property {number | null} [until] of a trend: its last values hold up to here; null: up to now
 * @property {Series[]} series
 * @property {Gap[]} gaps
 * @property {number} known_to of `times`: gaps are known up to here
 * @property {Found | null} [found] of `gap` and `alarm`: the one that begins next
 * @property {number | null} [reached] of `alarm`: up to where it was searched
 * @property {number} groups of bpgr, as the next two
 * @property {number} incomplete
 * @property {{member: string, count: number}[]} [missing]
 * @property {number} more
 * @property {any} fields
 * @property {number} bytes
 * @property {string} first
 * @property {Record<string, Values>} arrays
 */

/** An answer that is an error, with its status. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {Fault | null} fault
   */
  constructor(status, fault) {
    super(fault ? sentence(fault) : `the server answers with status ${status}`);
    this.status = status;
  }

  /** The token is missing or wrong. */
  get isToken() {
    return this.status === 401;
  }
}

/** There is no answer. */
export class Away extends Error {}

/**
 * A fault as the command line prints it.
 * @param {Fault} fault
 * @returns {string}
 */
export function sentence(fault) {
  const lines = [fault.what, fault.cause && `cause: ${fault.cause}`, fault.hint && `hint: ${fault.hint}`];
  return lines.filter((line) => line).join('\n');
}

/** A server that says nothing for so long is away, ms. */
const SILENT = 15000;
/** A question that the network drops is asked again after so long, ms: a laptop changes its network, a browser then drops what is open. */
const AGAIN = 500;
const KEY = 'beamport-token';

/** @returns {string} the token of this tab; empty without one */
export function token() {
  return sessionStorage.getItem(KEY) ?? '';
}

/** @param {string} value */
export function keepToken(value) {
  sessionStorage.setItem(KEY, value);
}

/**
 * @param {string} path
 * @param {object} [body] posted as JSON
 * @param {number} [patience] ms
 * @returns {Promise<ArrayBuffer>} the body of the answer
 */
async function fetched(path, body, patience = SILENT) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body) headers['Content-Type'] = 'application/json';
  const away = (/** @type {Error} */ error) => {
    throw new Away(error.message);
  };
  const send = () =>
    fetch(path, {
      method: body ? 'POST' : 'GET',
      headers,
      body: body ? JSON.stringify(body) : null,
      cache: 'no-store',
      signal: AbortSignal.timeout(patience),
    });
  const again = async (/** @type {Error} */ error) => {
    // A command may have been done.
    if (body || !(error instanceof TypeError)) throw error;
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
    return send();
  };
  const response = await send().catch(again).catch(away);
  const answer = await response.arrayBuffer().catch(away);
  if (response.ok) return answer;
  /** @type {Fault | null} */
  let fault = null;
  try {
    fault = JSON.parse(text(answer)).fault ?? null;
  } catch {
    // Something between page and server answers: the status says all.
  }
  throw new Refused(response.status, fault);
}

/** @param {ArrayBuffer} bytes @returns {string} */
function text(bytes) {
  return new TextDecoder().decode(bytes);
}

/**
 * @param {string} path
 * @param {object} [body] posted as JSON
 * @param {number} [patience] ms
 * @returns {Promise<any>} the JSON of the answer
 */
export async function ask(path, body, patience) {
  return JSON.parse(text(await fetched(path, body, patience)));
}

/** @returns {Promise<Status>} */
export async function status() {
  return ask('api/status');
}

/**
 * @param {number | null} at ns since 1970 UTC; null: now
 * @param {Asked[]} panels
 * @returns {Promise<{time: number, panels: Answer[]}>}
 */
export async function look(at, panels) {
  return parse(await fetched('api/look', { at, panels }));
}

/** @type {Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => Numbers>} */
const TYPES = {
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** @type {Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => BigInt64Array | BigUint64Array>} */
const WIDE = { int64: BigInt64Array, uint64: BigUint64Array };

/** Keys of an answer that are times: a number is near enough, and is what one calculates with. */
const TIMES = /** @type {const} */ (['source_time', 'arrival_time', 'from', 'to', 'earliest', 'arrived', 'until', 'known_to', 'reached']);

/**
 * Takes the binary answer apart; arrays of 64-bit integers become float64.
 * @param {ArrayBuffer} buffer
 * @returns {{time: number, panels: Answer[]}}
 */
export function parse(buffer) {
  const head = new DataView(buffer);
  if (buffer.byteLength < 8 || head.getUint32(0) !== 0x42504c31) throw new Error('the answer is not one of /api/look');
  const length = head.getUint32(4, true);
  const answer = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)), exact);
  const arrays = Math.ceil((8 + length) / 8) * 8;
  answer.time = Number(answer.time);
  for (const panel of answer.panels) {
    for (const one of [panel, ...(panel.gaps ?? []), ...(panel.found ? [panel.found] : [])]) {
      for (const key of TIMES) if (typeof one[key] === 'bigint') one[key] = Number(one[key]);
    }
    for (const series of panel.series ?? []) {
      series.last_time = series.last_time == null ? null : Number(series.last_time);
      for (const one of [...(series.alarms ?? []), ...(series.lost ?? [])]) {
        one.from = Number(one.from);
        one.to = one.to == null ? null : Number(one.to);
      }
    }
    for (const [name, { dtype, shape, offset }] of Object.entries(panel.arrays ?? {})) {
      const size = shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      /** @type {Numbers} */
      let values;
      if (dtype in WIDE) values = Float64Array.from(new WIDE[dtype](buffer, arrays + offset, size), Number);
      else if (dtype in TYPES) values = new TYPES[dtype](buffer, arrays + offset, size);
      else throw new Error(`the answer has an array of type ${dtype}`);
      panel.arrays[name] = { shape, values };
    }
  }
  return answer;
}

/**
 * Keeps whole numbers exact that a number of JavaScript cannot hold, where the browser passes their text.
 * @param {string} _key
 * @param {any} value
 * @param {{source?: string}} [context]
 */
function exact(_key, value, context) {
  if (typeof value !== 'number' || !Number.isInteger(value) || Number.isSafeInteger(value)) return value;
  return context?.source && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}
