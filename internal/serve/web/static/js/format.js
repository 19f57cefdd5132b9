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
 * Formats a limit: 50K / min, burst 75K. It can wrap only at the comma.
 * @param {{amount: number, period: string, burst?: number}} limit
 */
export function limitText(limit) {
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
