/** Lines with bands over a common x axis: learning curves. */

import { drawCursor, html, mount, nearest, picture, positionTip, range, short, svg, ticks } from "/chart.js";

const MOST_TIP_ROWS = 10;
const DOTS_UP_TO = 30; // a line of at most this many points has a dot on each

/**
 * @typedef {object} Series
 * @property {string} label shown in the legend and the tooltip
 * @property {string} colour any CSS colour
 * @property {string} [dash] as in stroke-dasharray
 * @property {number[]} x ascending
 * @property {(number|null)[]} y null is a gap
 * @property {(number|null)[]} [low] the band's lower end, with `high`
 * @property {(number|null)[]} [high]
 * @property {(number|null)[]} [raw] the values that `y` smooths: drawn thin below it, and shown in the tooltip
 * @property {[number[], (number|null)[]][]} [faint] thin lines that belong to the series (its seeds), each [x, y]
 *
 * @typedef {object} Point
 * @property {number} series index into `series`
 * @property {number|null} faint index into the series' `faint`, or null for the line itself
 * @property {number} index position in x
 * @property {number} x
 * @property {number} y
 */

/**
 * Draw a line chart. Arrow keys move between points, Enter selects one.
 * @param {HTMLElement} element drawn into; give it a width
 * @param {object} options
 * @param {Series[]} options.series
 * @param {string} [options.xLabel]
 * @param {string} [options.yLabel]
 * @param {[number|null, number|null]} [options.yRange] fixed ends of the y axis; null fits the data
 * @param {boolean} [options.yLog] logarithmic; values that are not positive are gaps
 * @param {number} [options.height] in pixels, 240 by default
 * @param {boolean} [options.legend] false omits it
 * @param {(point: Point) => void} [options.onPoint] called when a point is clicked, or selected with Enter
 * @returns {{cursor: (x: number|null) => void}} `cursor` marks a value on the x axis without redrawing
 */
export function lineChart(element, options) {
  const chart = mount(element, drawLines);
  chart.options = options;
  chart.draw();
  return { cursor: (x) => ((chart.cursor = x), drawCursor(chart)) };
}

function drawLines(chart) {
  const { series, xLabel = "", yLabel = "", height = 240, legend = true, onPoint } = chart.options;
  chart.width = Math.max(chart.element.clientWidth, 160);
  const scales = scalesOf(chart);
  const root = picture(height, `${yLabel} over ${xLabel}: ${series.map((s) => s.label).join(", ")}`);
  drawAxes(root, scales, { xLabel, yLabel, height });
  const groups = series.map((s) => drawSeries(root, s, scales.px, scales.py));
  chart.body.replaceChildren(root);
  Object.assign(chart, { root, groups, cursorLine: null, ...scales });
  chart.over = svg(root, "g");
  drawLegend(chart, legend ? series : []);
  listen(chart, onPoint);
  drawCursor(chart);
  if (chart.at) showPoint(chart, chart.at);
}

/** The plotting box, the mappings between data and pixels, and the ticks. */
function scalesOf({ options, width }) {
  const { series, xLabel = "", yLabel = "", yRange = [], yLog = false, height = 240 } = options;
  const lift = (v) => (v === null || !Number.isFinite(v) || (yLog && v <= 0) ? null : yLog ? Math.log10(v) : v);
  const lists = series.flatMap((s) => [
    s.y,
    s.raw ?? [],
    s.low ?? [],
    s.high ?? [],
    ...(s.faint ?? []).map(([, y]) => y),
  ]);
  const yEnds = range(
    lists.map((list) => list.map(lift)),
    yRange.map((v) => (v === null ? null : lift(v))),
    0.04,
  );
  const [y0, y1] = yLog ? decades(yEnds) : yEnds;
  const [x0, xLast] = range(
    series.flatMap((s) => [s.x, ...(s.faint ?? []).map(([x]) => x)]),
    [],
    0,
    0,
  );
  const x1 = xLast > x0 ? xLast : x0 + (Math.abs(x0) || 1);
  const levels = yLog ? ticks(y0, y1, 4).filter(Number.isInteger) : ticks(y0, y1, height / 48);
  const labels = levels.map((v) => short(yLog ? 10 ** v : v));
  const box = {
    left: 14 + 6.4 * Math.max(2, ...labels.map((label) => label.length)) + (yLabel ? 15 : 0),
    right: width - 12,
    top: 8,
    bottom: height - (xLabel ? 36 : 20),
  };
  const pixel = (level) => box.bottom - ((level - y0) / (y1 - y0)) * (box.bottom - box.top);
  return {
    box,
    px: (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left),
    unpx: (p) => x0 + ((p - box.left) / (box.right - box.left)) * (x1 - x0),
    py: (v) => (lift(v) === null ? null : pixel(lift(v))),
    xTicks: xLast > x0 ? ticks(x0, x1, (box.right - box.left) / (width < 400 ? 62 : 90)) : [x0],
    yTicks: levels.map((level, i) => ({ y: pixel(level), label: labels[i] })),
  };
}

/** A logarithmic range widened to hold two powers of ten at least: only those have ticks. */
function decades([low, high]) {
  return Math.floor(high) - Math.ceil(low) >= 1 ? [low, high] : [Math.floor(low), Math.ceil(high)];
}

function drawAxes(root, { box, px, xTicks, yTicks }, { xLabel, yLabel, height }) {
  for (const { y, label } of yTicks) {
    svg(root, "line", { class: "gc-grid", x1: box.left, x2: box.right, y1: y, y2: y });
    svg(root, "text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, label);
  }
  for (const v of xTicks) {
    svg(root, "line", { class: "gc-axis", x1: px(v), x2: px(v), y1: box.bottom, y2: box.bottom + 4 });
    svg(root, "text", { x: px(v), y: box.bottom + 16, "text-anchor": "middle" }, short(v));
  }
  svg(root, "line", { class: "gc-axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
  if (xLabel) svg(root, "text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, xLabel);
  const turned = `translate(11 ${(box.top + box.bottom) / 2}) rotate(-90)`;
  if (yLabel) svg(root, "text", { transform: turned, "text-anchor": "middle" }, yLabel);
}

/** A path through the points, broken at gaps. */
function path(x, y, px, py) {
  let [text, pen] = ["", false];
  for (let i = 0; i < x.length; i++) {
    const at = py(y[i]);
    if (at !== null) text += `${pen ? "L" : "M"}${px(x[i]).toFixed(1)} ${at.toFixed(1)}`;
    pen = at !== null;
  }
  return text;
}

function drawSeries(root, s, px, py) {
  const group = svg(root, "g", { class: "gc-s" });
  setColour(group, s.colour);
  const dash = s.dash ? { "stroke-dasharray": s.dash } : {};
  for (const [x, y] of [...(s.faint ?? []), ...(s.raw ? [[s.x, s.raw]] : [])])
    svg(group, "path", { class: "gc-thin", d: path(x, y, px, py), ...dash });
  if (s.low && s.high) drawBand(group, s, px, py);
  const isDense = s.x.length > 5 * DOTS_UP_TO && !s.raw;
  svg(group, "path", { class: "gc-line", d: path(s.x, s.y, px, py), ...dash }).style.strokeWidth = isDense ? 1.3 : 2;
  const isGap = (i) => i < 0 || i >= s.x.length || py(s.y[i]) === null;
  s.x.forEach((x, i) => {
    const isAlone = isGap(i - 1) && isGap(i + 1); // no line leads to it
    if (!isGap(i) && (s.x.length <= DOTS_UP_TO || isAlone))
      svg(group, "circle", { class: "gc-dot", cx: px(x), cy: py(s.y[i]), r: 2.5 });
  });
  return group;
}

function drawBand(group, s, px, py) {
  const known = s.x.map((_, i) => i).filter((i) => py(s.low[i]) !== null && py(s.high[i]) !== null);
  const outline = [...known.map((i) => [s.x[i], s.high[i]]), ...known.reverse().map((i) => [s.x[i], s.low[i]])];
  const corners = outline.map(([x, y]) => `${px(x).toFixed(1)} ${py(y).toFixed(1)}`);
  if (corners.length) svg(group, "path", { class: "gc-band", d: `M${corners.join("L")}Z` });
}

/** Black follows the ink of the colour scheme, so that it is visible on a dark page. */
function setColour(element, colour) {
  element.style.setProperty("--gc-colour", colour === "#000000" ? "var(--gc-ink)" : colour);
}

/** A short stroke in the series' colour and dash. */
function addKey(parent, s) {
  const box = svg(parent, "svg", { class: "gc-key gc-s", viewBox: "0 0 18 8" });
  setColour(box, s.colour);
  svg(box, "path", { class: "gc-line", d: "M0 4H18", ...(s.dash ? { "stroke-dasharray": s.dash } : {}) });
}

function drawLegend(chart, series) {
  chart.legend.replaceChildren();
  chart.legend.hidden = series.length === 0;
  series.forEach((s, i) => {
    const item = html(chart.legend, "li");
    addKey(item, s);
    html(item, "span", "", s.label);
    item.onmouseenter = () => chart.groups.forEach((g, j) => g.classList.toggle("gc-dim", j !== i));
    item.onmouseleave = () => chart.groups.forEach((g) => g.classList.remove("gc-dim"));
  });
}

/** The drawn point nearest to a position in the picture. */
function pick(chart, left, top) {
  let [best, least] = [null, Infinity];
  chart.options.series.forEach((s, series) => {
    [[null, s.x, s.y], ...(s.faint ?? []).map(([x, y], j) => [j, x, y])].forEach(([faint, x, y]) => {
      if (!x.length) return;
      const index = nearest(x, chart.unpx(left));
      const at = chart.py(y[index]);
      if (at === null) return;
      const distance = Math.hypot((chart.px(x[index]) - left) * 1.5, at - top) + (faint === null ? 0 : 4);
      if (distance < least) [best, least] = [{ series, faint, index, x: x[index], y: y[index] }, distance];
    });
  });
  return best;
}

function listen(chart, onPoint) {
  const root = chart.root;
  const pointAt = (event) => {
    const frame = root.getBoundingClientRect();
    return pick(chart, event.clientX - frame.left, event.clientY - frame.top);
  };
  root.classList.toggle("gc-clicks", Boolean(onPoint));
  root.onpointermove = (event) => showPoint(chart, pointAt(event));
  root.onpointerleave = root.onblur = () => showPoint(chart, null);
  root.onclick = (event) => {
    const point = pointAt(event);
    if (point && onPoint) onPoint(point);
  };
  root.onkeydown = (event) => {
    const { series } = chart.options;
    if (event.key === "Escape") showPoint(chart, null);
    if (event.key === "Enter" && chart.at && onPoint) onPoint(chart.at);
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move || !series.length) return;
    event.preventDefault();
    const first = { series: 0, index: 0, x: series[0].x[0] };
    showPoint(chart, chart.at ? moved(chart.at, series, move) : moved(first, series, [0, 0]));
  };
}

/** The point reached from `at` by going `across` series and `along` the x axis. */
function moved(at, series, [across, along]) {
  const next = (at.series + across + series.length) % series.length;
  const { x, y } = series[next];
  const index = Math.min(Math.max(nearest(x, at.x) + along, 0), x.length - 1);
  return { series: next, faint: null, index, x: x[index], y: y[index] };
}

/** Mark a point and show its tooltip; null hides both. */
function showPoint(chart, point) {
  chart.at = point;
  chart.over.replaceChildren();
  chart.tip.hidden = !point || point.x === undefined;
  if (chart.tip.hidden) return;
  const { series, xLabel = "" } = chart.options;
  const left = chart.px(point.x);
  const top = chart.py(point.y);
  svg(chart.over, "line", { class: "gc-cross", x1: left, x2: left, y1: chart.box.top, y2: chart.box.bottom });
  if (top !== null) {
    const mark = svg(chart.over, "circle", { class: "gc-s gc-pick", cx: left, cy: top, r: 4 });
    setColour(mark, series[point.series].colour);
  }
  const rows = tipRows(series, point, chart);
  chart.tip.replaceChildren();
  html(chart.tip, "b", "", `${point.x.toLocaleString("en")} ${xLabel}`);
  for (const row of rows.slice(0, MOST_TIP_ROWS)) {
    const line = html(chart.tip, "div", row.isPicked ? "gc-picked" : "");
    addKey(line, row.s);
    html(line, "span", "", row.s.label);
    html(line, "span", "", row.text);
  }
  if (rows.length > MOST_TIP_ROWS) html(chart.tip, "div", "", `and ${rows.length - MOST_TIP_ROWS} more`);
  positionTip(chart, left);
}

/** A row per series with a value at the point: the nearest `MOST_TIP_ROWS` from top to bottom, then the rest. */
function tipRows(series, point, chart) {
  const rows = series.flatMap((s, j) => {
    if (!s.x.length) return [];
    const i = j === point.series && point.faint === null ? point.index : nearest(s.x, point.x);
    const y = (s.raw ?? s.y)[i];
    if (y === null || (i === 0 && point.x < s.x[0]) || (i === s.x.length - 1 && point.x > s.x[i])) return [];
    const hasBand = s.low && s.high && s.low[i] !== null && s.high[i] !== null && s.low[i] !== s.high[i];
    const text = short(y) + (hasBand ? ` [${short(s.low[i], 3)}, ${short(s.high[i], 3)}]` : "");
    return [{ s, text, y, isPicked: j === point.series }];
  });
  const distance = (row) => Math.abs((chart.py(row.y) ?? 0) - (chart.py(point.y) ?? 0));
  rows.sort((a, b) => distance(a) - distance(b));
  const shown = rows.slice(0, MOST_TIP_ROWS).sort((a, b) => b.y - a.y);
  return [...shown, ...rows.slice(MOST_TIP_ROWS)];
}
