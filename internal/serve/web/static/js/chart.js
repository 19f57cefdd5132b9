// A bar chart over time, stacked by series. Each series is one path, so that a chart of 120 seconds is redrawn in well
// under a millisecond.

import { h, say, svg, swap } from './dom.js';
import { count } from './format.js';

/** @typedef {{at: number, values: number[]}} Point */

/**
 * @param {object} options
 * @param {string} options.label describes the chart to screen readers
 * @param {{name: string, look: string}[]} options.series from the bottom up
 * @param {(at: number) => string} options.time formats a point's time, under the chart and beside its values
 * @param {string} options.empty is the text to show if all values are 0
 */
export function chart({ label, series, time, empty }) {
  const top = 8, bottom = 22, left = 44, right = 4;
  const paths = series.map((s) => svg('path', { class: `bars ${s.look}` }));
  const grid = svg('g', { class: 'grid' });
  const axis = svg('g', { class: 'axis' });
  const cursor = svg('rect', { class: 'cursor', width: 0 });
  const image = svg('svg', { 'aria-hidden': 'true' }, grid, cursor, paths, axis);
  const values = series.map(() => h('b', { class: 'num' }));
  const moment = h('span', { class: 'moment num' });
  const legend = h('div', { class: 'legend' }, series.map((s, i) => h('span', { class: 'key' }, h('i', { class: s.look }), s.name, ' ', values[i])), moment);
  const nothing = h('p', { class: 'chart-empty', hidden: true }, empty);
  const frame = h('div', { class: 'frame', role: 'group', tabindex: '0', 'aria-label': label, on: { pointermove: point, pointerleave: leave, blur: leave, keydown: step } }, image, nothing);
  const spoken = h('p', { class: 'unseen', 'aria-live': 'polite' });
  const el = h('figure', { class: 'chart' }, legend, frame, spoken);

  /** @type {Point[]} */
  let points = [];
  let width = 0, height = 0, chosen = -1;
  new ResizeObserver(() => {
    width = frame.clientWidth;
    height = frame.clientHeight;
    draw();
  }).observe(frame);

  const slot = () => (width - left - right) / Math.max(1, points.length);

  function draw() {
    if (width === 0) return;
    image.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const sums = points.map((p) => p.values.reduce((a, b) => a + Math.max(0, b), 0));
    const most = Math.max(0, ...sums);
    nothing.hidden = most > 0;
    const { ceiling, ticks } = scale(most);
    const y = (/** @type {number} */ v) => top + (height - top - bottom) * (1 - v / ceiling);
    const w = slot(), gap = w > 12 ? 3 : w > 3 ? 1 : 0;
    const base = points.map(() => 0);
    series.forEach((_, s) => {
      let d = '';
      points.forEach((p, i) => {
        const v = Math.max(0, p.values[s]);
        if (v === 0) return;
        // Any value above 0 must be visible.
        const y0 = y(base[i]), y1 = Math.min(y(base[i] + v), y0 - 1);
        d += `M${(left + i * w + gap / 2).toFixed(1)} ${y0.toFixed(1)}V${y1.toFixed(1)}h${Math.max(0.5, w - gap).toFixed(1)}V${y0.toFixed(1)}z`;
        base[i] += v;
      });
      paths[s].setAttribute('d', d);
    });
    swap(grid, ticks.map((t) => [
      svg('line', { x1: left, x2: width - right, y1: y(t), y2: y(t), class: t === 0 ? 'floor' : null }),
      svg('text', { x: left - 8, y: y(t) + 4, 'text-anchor': 'end' }, count(t)),
    ]));
    const every = Math.max(1, Math.ceil(points.length / Math.max(1, Math.floor((width - left) / 110))));
    swap(axis, points.map((p, i) => ((points.length - 1 - i) % every === 0 && svg('text', {
      x: Math.min(left + (i + 0.5) * w, width - right), y: height - 5,
      'text-anchor': left + (i + 0.5) * w > width - 40 ? 'end' : i * w < 30 ? 'start' : 'middle',
    }, time(p.at)))));
    tell();
  }

  function tell() {
    const p = points[chosen];
    cursor.setAttribute('width', p ? Math.max(1, slot()).toFixed(1) : '0');
    if (p) {
      cursor.setAttribute('x', (left + chosen * slot()).toFixed(1));
      cursor.setAttribute('y', String(top));
      cursor.setAttribute('height', String(Math.max(0, height - top - bottom)));
    }
    series.forEach((_, i) => say(values[i], p ? count(p.values[i]) : ''));
    say(moment, p ? time(p.at) : '');
  }

  /** @param {PointerEvent} event */
  function point(event) {
    const x = event.clientX - frame.getBoundingClientRect().left - left;
    chosen = points.length && x >= 0 ? Math.min(points.length - 1, Math.floor(x / slot())) : -1;
    tell();
  }

  function leave() {
    chosen = -1;
    tell();
  }

  /** @param {KeyboardEvent} event */
  function step(event) {
    const to = { ArrowLeft: chosen < 0 ? points.length - 1 : chosen - 1, ArrowRight: chosen + 1, Home: 0, End: points.length - 1 }[event.key];
    if (to === undefined || !points.length) return;
    event.preventDefault();
    chosen = Math.max(0, Math.min(points.length - 1, to));
    tell();
    say(spoken, `${time(points[chosen].at)}: ${series.map((s, i) => `${s.name} ${count(points[chosen].values[i])}`).join(', ')}`);
  }

  return {
    el,
    /** @param {Point[]} now in order of time */
    update(now) {
      // A selected point stays selected while the chart moves on.
      const at = points[chosen]?.at;
      points = now;
      if (at !== undefined) chosen = points.findIndex((p) => p.at === at);
      draw();
    },
  };
}

/**
 * Returns the upper end of the axis for a maximum, and its grid lines: whole multiples of 1, 2 or 5 times a power of ten.
 * @param {number} most
 */
function scale(most) {
  const rough = Math.max(1, most) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = Math.max(1, power * ([1, 2, 5, 10].find((f) => f * power >= rough) ?? 10));
  const n = Math.max(1, Math.ceil(most / unit));
  return { ceiling: n * unit, ticks: Array.from({ length: n + 1 }, (_, i) => i * unit) };
}
