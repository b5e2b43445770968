// Figures and times as people read them.

/**
 * A count with separated thousands.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function count(value) {
  return value == null ? '-' : String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P'];

/**
 * A quantity with an SI prefix and three digits.
 * @param {number | null | undefined} value
 * @param {string} unit
 * @returns {string}
 */
export function quantity(value, unit) {
  if (value == null) return '-';
  let rest = value;
  let power = 0;
  while (Math.abs(rest) >= 999.5 && power < PREFIXES.length - 1) {
    rest /= 1000;
    power += 1;
  }
  const digits = power === 0 && Number.isInteger(rest) ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(rest) || 1)));
  return `${rest.toFixed(Math.min(digits, 2))} ${PREFIXES[power]}${unit}`.trim();
}

/**
 * A measured value.
 * @param {number | bigint | string | null | undefined} value a text where it is not finite
 * @returns {string}
 */
export function number(value) {
  if (value == null) return '-';
  if (typeof value !== 'number') return String(value);
  if (Number.isSafeInteger(value)) return String(value);
  const digits = Number(value.toPrecision(6));
  // Zeros in the place of digits would look exact.
  return Math.abs(digits) < 1e6 ? String(digits) : digits.toExponential().replace('e+', 'e');
}

/**
 * A value of a scale with so many digits that its neighbours, a step away, have other texts.
 * @param {number} value
 * @param {number} step
 * @returns {string}
 */
export function precise(value, step) {
  const digits = Math.ceil(Math.log10(Math.abs(value / step)) + 1e-9) + 1;
  return digits > 6 && digits <= 16 ? String(Number(value.toPrecision(digits))) : number(Number(value.toPrecision(6)));
}

/**
 * Texts for the ticks of a scale.
 * @param {(number | null)[]} splits
 * @returns {string[]}
 */
export function scaleTexts(splits) {
  const values = /** @type {number[]} */ (splits.filter((split) => split != null));
  const steps = values.slice(1).map((value, i) => Math.abs(value - values[i]));
  const step = Math.min(...steps.filter((one) => one > 0));
  return splits.map((split) => (split == null ? '' : Number.isFinite(step) ? precise(split, step) : number(split)));
}

/**
 * Date and time, UTC, to the ms.
 * @param {number} ns since 1970 UTC
 * @returns {string}
 */
export function time(ns) {
  // A number is up to 128 ns away from the time of today that it stands for: 250 ms are not 249.
  const date = new Date(Math.floor(ns / 1e6 + 0.001));
  // Clocks of sources may be wrong: a time beyond the calendar is a number.
  return Number.isNaN(date.getTime()) ? `${ns} ns` : date.toISOString().replace('T', ' ').replace('Z', '');
}

/**
 * Time of day of this browser, with its time zone; empty where that is UTC.
 * @param {number} ns since 1970 UTC
 * @returns {string}
 */
export function local(ns) {
  const date = new Date(ns / 1e6);
  if (Number.isNaN(date.getTime()) || date.getTimezoneOffset() === 0) return '';
  return date.toLocaleTimeString('en-GB', { timeZoneName: 'short' });
}

/**
 * Reads a moment that a person wrote: a time of day, UTC, with a date before it or without. Without one it is the newest
 * such time that is not in the future.
 * @param {string} text
 * @param {number} now ns since 1970 UTC
 * @returns {number | string} ns since 1970 UTC; a text: what is wrong
 */
export function moment(text, now) {
  const form = /^(?:(\d{4}-\d\d-\d\d)[ T]+)?(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*(?:Z|UTC)?$/i;
  const wrong = `"${text}" is not a time. Write 14:03, 14:03:10 or 14:03:10.250 (UTC), or a date before it: 2026-11-26 14:03.`;
  const [, day, hours, minutes, seconds = '00', rest = ''] = form.exec(text.trim()) ?? [];
  if (!hours) return wrong;
  const wanted = `${day ?? time(now).slice(0, 10)}T${hours.padStart(2, '0')}:${minutes}:${seconds}`;
  const start = Date.parse(`${wanted}Z`);
  // 30 February is a day in March for some browsers.
  if (Number.isNaN(start) || !new Date(start).toISOString().startsWith(wanted)) return wrong;
  let at = start * 1e6 + Number(rest.padEnd(9, '0'));
  if (!day && at > now) at -= 86400e9;
  return at > now ? `${time(at)} is in the future; it is ${time(now)} now.` : at;
}

/**
 * Time of day, UTC, to the s.
 * @param {number} ms since 1970 UTC
 * @returns {string}
 */
export function clock(ms) {
  return new Date(ms).toISOString().slice(11, 19);
}

/**
 * A duration in its largest unit.
 * @param {number} ns
 * @returns {string}
 */
export function duration(ns) {
  const seconds = Math.abs(ns) / 1e9;
  const sign = ns < 0 ? '-' : '';
  if (seconds < 1) return `${sign}${Math.round(seconds * 1e3)} ms`;
  if (seconds < 120) return `${sign}${number(Number(seconds.toFixed(1)))} s`;
  if (seconds < 7200) return sign + parts(Math.round(seconds), 60, 'min', 's');
  if (seconds < 172800) return sign + parts(Math.round(seconds / 60), 60, 'h', 'min');
  return `${sign}${count(Math.round(seconds / 86400))} d`;
}

/**
 * `7 min 02 s`, or `7 min` where nothing is left.
 * @param {number} value in the smaller unit
 * @param {number} size of the larger unit
 * @param {string} large
 * @param {string} small
 */
function parts(value, size, large, small) {
  const rest = value % size;
  return `${Math.floor(value / size)} ${large}${rest ? ` ${String(rest).padStart(2, '0')} ${small}` : ''}`;
}

/**
 * Fields of a flat object: `datagrams 12, fill 0.5`.
 * @param {Record<string, any>} values
 * @returns {string}
 */
export function fields(values) {
  const all = Object.entries(values);
  return all.length === 0 ? '-' : all.map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : number(value)}`).join(', ');
}

/**
 * A number of messages; `about` where they were spread over time.
 * @param {number} n
 * @returns {string}
 */
export function messages(n) {
  return `${estimate(n)} message${n === 1 ? '' : 's'}`;
}

/**
 * A count, or what stands for one.
 * @param {number} n
 * @returns {string}
 */
export function estimate(n) {
  if (Number.isInteger(n)) return count(n);
  return n < 0.5 ? 'less than 1' : `about ${count(Math.round(n))}`;
}

/**
 * Counts by reason: `full 3, corrupt 1`.
 * @param {Record<string, number>} counts
 * @returns {string}
 */
export function reasons(counts) {
  const all = Object.entries(counts).filter(([, value]) => value > 0);
  return all.length === 0 ? '0' : all.map(([reason, value]) => `${reason} ${count(value)}`).join(', ');
}
