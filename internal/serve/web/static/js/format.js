// Formatting and parsing of numbers, durations and times.

import { h } from './dom.js';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const units = /** @type {[number, string][]} */ ([[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'K']]);

/**
 * Formats a count: in full up to 9,999, then three digits and a unit.
 * @param {number} n
 */
export function count(n) {
  const size = Math.abs(n);
  if (size < 1e4) return whole.format(n);
  for (const [unit, letter] of units) {
    // Otherwise 999,950 would be rounded to 1000K.
    if (size >= unit * 0.9995) return short(n / unit) + letter;
  }
  return whole.format(n);
}

/** @param {number} n */
function short(n) {
  const digits = Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return String(Number(n.toFixed(digits)));
}

/**
 * Returns a count as an element, with the exact number as its tooltip.
 * @param {number} n
 */
export function num(n) {
  return h('span', { class: 'num', title: Math.abs(n) >= 1e4 ? whole.format(n) : null }, count(n));
}

/**
 * Formats a rate or a mean, with one decimal below 100.
 * @param {number} n
 */
export function rate(n) {
  return Math.abs(n) < 100 ? trim(n.toFixed(1)) : count(Math.round(n));
}

/** @param {string} text */
function trim(text) {
  return text.replace(/\.0$/, '');
}

/**
 * Formats a share from 0 to 1 as a percentage.
 * @param {number} share
 */
export function percent(share) {
  const p = share * 100;
  if (p > 0 && p < 0.1) return '< 0.1%';
  return (p >= 99.95 || p === 0 || p >= 10 ? Math.floor(p) : trim(p.toFixed(1))) + '%';
}

/**
 * Formats milliseconds.
 * @param {number} n
 */
export function millis(n) {
  if (n >= 1000) return trim((n / 1000).toFixed(1)) + ' s';
  if (n < 1) return n > 0 ? `${Math.max(1, Math.round(n * 1000))} µs` : '< 1 µs';
  return (n >= 10 ? n.toFixed(0) : trim(n.toFixed(1))) + ' ms';
}

/**
 * Formats seconds in a suitable unit.
 * @param {number} s
 */
export function seconds(s) {
  if (s < 1) return s <= 0 ? '0 s' : trim(s.toFixed(1)) + ' s';
  if (s < 120) return Math.round(s) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  if (s < 172800) return Math.round(s / 3600) + ' h';
  return Math.round(s / 86400) + ' days';
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const year = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });

/**
 * Formats the time of day.
 * @param {string | number | Date} at
 */
export function hms(at) {
  return clock.format(new Date(at));
}

/**
 * Returns a time element: local time, with the date unless it is today, and UTC as its tooltip.
 * @param {string | number | Date} at
 */
export function when(at) {
  const t = new Date(at), now = new Date();
  if (Number.isNaN(t.valueOf())) return h('span', null, String(at));
  const form = t.toDateString() === now.toDateString() ? clock : t.getFullYear() === now.getFullYear() ? day : year;
  const utc = t.toISOString();
  return h('time', { datetime: utc, title: utc.replace('T', ' ').replace(/\.\d+Z$/, ' UTC') }, form.format(t));
}

/**
 * Returns when the window of a quota ends, in its time zone: resets in 9 days, 1 Dec 00:00 Berlin; or when the next slots
 * that are held come back unless they are renewed: next ends 12:03:45.
 * @param {string} period such as month@Europe/Berlin
 * @param {number} s seconds until the end
 * @param {string | number | Date} from the time from which they count
 */
export function resets(period, s, from) {
  const now = new Date(from), zone = period.replace(/^[^@]*@?/, '');
  if (slotsOf({ period })) return h('span', null, 'next ends ', when(new Date(now.valueOf() + s * 1000)));
  // The seconds are rounded up to milliseconds, and windows end on the minute.
  const end = new Date(Math.round((now.valueOf() + s * 1000) / 60_000) * 60_000);
  const utc = end.toISOString();
  const text = local(end, now, zone) ?? local(end, now, 'UTC');
  return h('span', null, `resets in ${seconds(s)}, `, h('time', { datetime: utc, title: `${zone}: ${utc.slice(0, 16).replace('T', ' ')} UTC` }, text));
}

/**
 * Returns a time in a time zone, or undefined if the browser does not know the zone, which may be newer.
 * @param {Date} t
 * @param {Date} now parts of the date that are the same are left out
 * @param {string} timeZone
 * @param {string} [name] of the zone to show
 */
function local(t, now, timeZone, name = timeZone) {
  try {
    const part = (/** @type {Intl.DateTimeFormatOptions} */ o, at = t) => new Intl.DateTimeFormat(undefined, { ...o, timeZone }).format(at);
    const same = (/** @type {Intl.DateTimeFormatOptions} */ o) => part(o) === part(o, now);
    const date = same({ dateStyle: 'short' }) ? '' : part({ day: 'numeric', month: 'short', year: same({ year: 'numeric' }) ? undefined : 'numeric' }) + ' ';
    return `${date}${part({ hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })} ${name.replace(/^.*\//, '').replaceAll('_', ' ')}`;
  } catch {
    return undefined;
  }
}

/**
 * Returns an instant in the time zone that it is written in, as 4 Dec 18:00 Berlin, and whether it has passed.
 * @param {string} instant such as 2026-12-04T18:00@Europe/Berlin, or a time of RFC 3339
 */
export function at(instant) {
  const [wall, zone] = instant.includes('@') ? instant.split('@') : [new Date(instant).toISOString().slice(0, 19), 'UTC'];
  // Local times are compared and formatted as if they were in UTC.
  let now = '';
  try {
    now = new Date().toLocaleString('sv', { timeZone: zone }).replace(' ', 'T');
  } catch {
    // The browser does not know the zone: then nothing is known to have passed.
  }
  const utc = (/** @type {string} */ text) => new Date(text.includes('T') ? `${text}Z` : text);
  return { passed: now >= wall, text: local(utc(wall), utc(now || '1970'), 'UTC', zone) ?? instant };
}

/**
 * Returns how many slots a limit, or its status, has, and their heal time unless it is the default; null for other limits.
 * @param {{slots?: number, heal?: string, period?: string, burst?: number}} limit
 */
export function slotsOf({ slots, heal = '', period = '', burst = 0 }) {
  if (period.startsWith('slots')) return { slots: burst, heal: period.slice('slots/'.length) };
  return slots ? { slots, heal: heal === '30s' ? '' : heal } : null;
}

/**
 * Formats a limit: 50K / min, burst 75K; 20 slots; or balance. It can wrap only at the comma.
 * @param {{amount?: number, period: string, burst?: number, slots?: number, heal?: string}} limit
 */
export function limitText(limit) {
  const held = slotsOf(limit);
  if (held) return `${count(held.slots)}\u00a0slots${held.heal && `, heal\u00a0${held.heal}`}`;
  if (!limit.amount) return limit.period;
  const burst = limit.burst && limit.burst !== limit.amount ? `, burst\u00a0${count(limit.burst)}` : '';
  return `${count(limit.amount)}\u00a0/\u00a0${limit.period}${burst}`;
}

/**
 * Parses a whole number as people write it: 50K, 1.5M, 12,000. Returns NaN for anything else.
 * @param {string} text
 */
export function parseCount(text) {
  const m = /^\s*(\d[\d,_ ]*(?:\.\d+)?)\s*([KMG]?)\s*$/i.exec(text);
  if (!m) return NaN;
  const unit = { '': 1, K: 1e3, M: 1e6, G: 1e9 }[m[2].toUpperCase()] ?? NaN;
  const n = Number((Number(m[1].replace(/[,_ ]/g, '')) * unit).toPrecision(15));
  return Number.isSafeInteger(n) ? n : NaN;
}

/**
 * Formats a whole number so that parseCount returns it exactly: 50K, but 50001.
 * @param {number} n
 */
export function editable(n) {
  for (const [unit, letter] of /** @type {[number, string][]} */ ([[1e6, 'M'], [1e3, 'K']])) {
    if (n >= unit && n % (unit / 10) === 0) return n / unit + letter;
  }
  return String(n);
}
