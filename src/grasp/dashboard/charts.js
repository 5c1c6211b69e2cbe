/**
 * Two charts in plain SVG: `lineChart` and `heatMap`. They need no page, no style sheet and no other module, so that
 * the same text serves the live page and, inlined, a report that is one file. Text enters the document only as text.
 *
 * Colours follow the document's `color-scheme`: one that also wants the dark says `color-scheme: light dark`. Sizes
 * follow the element's width. Both charts take the keyboard: arrows move from point to point, Enter chooses one.
 * Calling again with the same element redraws in place.
 *
 * @typedef {object} Series
 * @property {string} label what the legend and the tooltip call it
 * @property {string} colour any CSS colour
 * @property {string} [dash] as in stroke-dasharray
 * @property {number[]} x ascending
 * @property {(number|null)[]} y null is a gap
 * @property {(number|null)[]} [low] the band's lower end, with `high`
 * @property {(number|null)[]} [high]
 * @property {(number|null)[]} [raw] what `y` smooths: drawn thin under it, and told by the tooltip in its place
 * @property {[number[], (number|null)[]][]} [faint] thin lines that belong to it (its seeds), each [x, y]
 *
 * @typedef {object} Point
 * @property {number} series index into `series`
 * @property {number|null} faint index into the series' `faint`, or null for the line itself
 * @property {number} index position in x
 * @property {number} x
 * @property {number} y
 */

const STYLE = `
.gc { position: relative; font: 12px/1.35 system-ui, sans-serif; color: var(--gc-ink);
  --gc-ink: light-dark(#3c4149, #c3c8cf); --gc-faint: light-dark(#e6e8eb, #2c3138);
  --gc-axis: light-dark(#a9afb7, #59616b); --gc-paper: light-dark(#fff, #1b1f24);
  --gc-zero: light-dark(#f1f1ee, #2e333a); }
.gc svg { display: block; width: 100%; overflow: visible; touch-action: pan-y; }
.gc svg:focus { outline: none; }
.gc svg:focus-visible { outline: 2px solid #56b4e9; outline-offset: 2px; border-radius: 3px; }
.gc text { fill: var(--gc-ink); font-size: 11px; font-variant-numeric: tabular-nums; }
.gc-grid { stroke: var(--gc-faint); } .gc-axis { stroke: var(--gc-axis); }
.gc-cross { stroke: var(--gc-axis); stroke-dasharray: 2 2; }
.gc-cursor { stroke: var(--gc-ink); stroke-width: 1.5; opacity: .6; }
.gc-s { --c: color-mix(in oklab, var(--gc-colour), light-dark(var(--gc-colour), #fff) 25%); transition: opacity .12s; }
.gc-line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.gc-thin { fill: none; stroke: var(--c); stroke-width: 1; opacity: .38; }
.gc-band { fill: var(--c); opacity: .16; } .gc-dot { fill: var(--c); }
.gc-pick { fill: var(--gc-paper); stroke: var(--c); stroke-width: 2.5; }
.gc-dim { opacity: .12; } .gc-clicks { cursor: pointer; }
.gc-legend { display: flex; flex-wrap: wrap; gap: 1px 14px; margin: 0 0 4px; padding: 0; list-style: none; }
.gc-legend[hidden], .gc-tip[hidden] { display: none; }
.gc-legend li { display: flex; align-items: center; gap: 5px; max-width: 100%; }
.gc-legend span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.gc svg.gc-key { flex: none; width: 18px; height: 8px; }
.gc-tip { position: absolute; z-index: 9; pointer-events: none; padding: 6px 9px; border-radius: 5px;
  background: var(--gc-paper); border: 1px solid var(--gc-axis); box-shadow: 0 2px 8px #0003; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.gc-tip b { font-weight: 600; } .gc-tip div { display: flex; gap: 7px; align-items: center; }
.gc-tip span:last-child { margin-left: auto; padding-left: 10px; } .gc-picked { font-weight: 600; }
.gc-cell { stroke: var(--gc-paper); }
.gc-here { pointer-events: none; fill: none; stroke: var(--gc-ink); stroke-width: 2; }
.gc .gc-value { font-size: 10px; text-anchor: middle; dominant-baseline: central; pointer-events: none; }
.gc .gc-light { fill: #fff; }
.gc-stack { position: relative; } .gc-stack canvas { position: absolute; image-rendering: pixelated; }
.gc-stack svg { position: relative; }
`;
const MOST_TOLD = 10; // rows of a tooltip
const DOTS_UP_TO = 30; // points of a line that are marked one by one
const charts = new WeakMap(); // element -> what is drawn in it

let styled = false;
function style() {
  if (styled) return;
  const sheet = new CSSStyleSheet(); // allowed by a policy that forbids inline styles
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  styled = true;
}

function html(parent, name, className = "", text = "") {
  const made = parent.appendChild(document.createElement(name));
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

/** An SVG element in another. */
export function svg(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return parent.appendChild(made);
}

/** 1500000 -> 1.5M, 0.25 -> 0.25, 3e-8 -> 3e-8. @param {number} value @param {number} [digits] @returns {string} */
export function short(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const [unit, name] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const tiny = size > 0 && size < 1e-3;
  const text = tiny
    ? value.toExponential(1).replace(".0e", "e")
    : `${Number((value / unit).toPrecision(digits))}${name}`;
  return text.replaceAll("-", "−");
}

/** An empty picture that takes the keyboard. */
export function root(height, label) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const attributes = { height, tabindex: 0, role: "img", "aria-label": label };
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Round numbers from low to high, about `count` of them. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) =>
    Number(((first + i) * step).toPrecision(12)),
  );
}

/** The least and the greatest of lists of numbers, or what is fixed instead; never the same. */
export function range(values, fixed = [], pad = 0, spread = 0.5) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of values)
    for (const v of list) if (v !== null && Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  if (low > high) [low, high] = [fixed[0] ?? 0, fixed[1] ?? 1];
  if (low === high && fixed[0] === low) high = low + 1;
  else if (low === high)
    [low, high] = [low - spread * (Math.abs(low) / 5 || 1), high + spread * (Math.abs(high) / 5 || 1)];
  const margin = (high - low) * pad;
  return [fixed[0] ?? low - margin, fixed[1] ?? high + margin];
}

/** A logarithmic range with at least two powers of ten in it: between two of them there is no tick to read. */
function decades([low, high]) {
  return Math.floor(high) - Math.ceil(low) >= 1 ? [low, high] : [Math.floor(low), Math.ceil(high)];
}

/** The element's chart: made once, drawn again whenever its width changes. */
export function mount(element, draw) {
  const known = charts.get(element);
  if (known) return Object.assign(known, { draw: () => draw(known) });
  style();
  element.replaceChildren();
  element.classList.add("gc");
  const chart = { element, options: null, at: null, cursor: null, width: 0, draw: () => draw(chart) };
  chart.legend = html(element, "ul", "gc-legend");
  chart.body = html(element, "div");
  chart.tip = html(element, "div", "gc-tip");
  chart.tip.hidden = true;
  chart.tip.setAttribute("role", "status");
  new ResizeObserver(() => {
    if (chart.options && element.clientWidth && element.clientWidth !== chart.width) chart.draw();
  }).observe(element);
  charts.set(element, chart);
  return chart;
}

/** Index of the value in ascending `x` nearest to `value`. */
function nearest(x, value) {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(x[low] - value) <= Math.abs(x[high] - value) ? low : high;
}

/**
 * Lines with bands over a common axis.
 * @param {HTMLElement} element drawn into; give it a width
 * @param {object} options
 * @param {Series[]} options.series
 * @param {string} [options.xLabel]
 * @param {string} [options.yLabel]
 * @param {[number|null, number|null]} [options.yRange] ends that are fixed; null lets the data decide
 * @param {boolean} [options.yLog] logarithmic; what is not positive is a gap
 * @param {number} [options.height] in pixels, 240 unless told
 * @param {boolean} [options.legend] false leaves it out
 * @param {(point: Point) => void} [options.onPoint] a point was clicked, or chosen with Enter
 * @returns {{cursor: (x: number|null) => void}} `cursor` marks a place on the x axis without drawing anew
 */
export function lineChart(element, options) {
  const chart = mount(element, drawLines);
  chart.options = options;
  chart.draw();
  return { cursor: (x) => ((chart.cursor = x), placeCursor(chart)) };
}

function drawLines(chart) {
  const {
    series,
    xLabel = "",
    yLabel = "",
    yRange = [],
    yLog = false,
    height = 240,
    legend = true,
    onPoint,
  } = chart.options;
  const width = (chart.width = Math.max(chart.element.clientWidth, 160));
  const lift = (v) => (v === null || !Number.isFinite(v) || (yLog && v <= 0) ? null : yLog ? Math.log10(v) : v);
  const lists = series.flatMap((s) => [
    s.y,
    s.raw ?? [],
    s.low ?? [],
    s.high ?? [],
    ...(s.faint ?? []).map((f) => f[1]),
  ]);
  const data = range(
    lists.map((list) => list.map(lift)),
    yRange.map((v) => (v === null ? null : lift(v))),
    0.04,
  );
  const [y0, y1] = yLog ? decades(data) : data;
  const [x0, xLast] = range(
    series.flatMap((s) => [s.x, ...(s.faint ?? []).map((f) => f[0])]),
    [],
    0,
    0,
  );
  const x1 = xLast > x0 ? xLast : x0 + (Math.abs(x0) || 1);
  const yTicks = yLog ? ticks(y0, y1, 4).filter(Number.isInteger) : ticks(y0, y1, height / 48);
  const words = yTicks.map((v) => (yLog ? short(10 ** v) : short(v)));
  const box = {
    left: 14 + 6.4 * Math.max(2, ...words.map((w) => w.length)) + (yLabel ? 15 : 0),
    right: width - 12,
    top: 8,
    bottom: height - (xLabel ? 36 : 20),
  };
  const px = (v) => box.left + ((v - x0) / (x1 - x0)) * (box.right - box.left);
  const unpx = (p) => x0 + ((p - box.left) / (box.right - box.left)) * (x1 - x0);
  const py = (v) => (lift(v) === null ? null : box.bottom - ((lift(v) - y0) / (y1 - y0)) * (box.bottom - box.top));
  const picture = root(height, `${yLabel} over ${xLabel}: ${series.map((s) => s.label).join(", ")}`);
  yTicks.forEach((v, i) => {
    const at = box.bottom - ((v - y0) / (y1 - y0)) * (box.bottom - box.top);
    svg(picture, "line", { class: "gc-grid", x1: box.left, x2: box.right, y1: at, y2: at });
    svg(picture, "text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, words[i]);
  });
  const xTicks = xLast > x0 ? ticks(x0, x1, (box.right - box.left) / (width < 400 ? 62 : 90)) : [x0];
  for (const v of xTicks) {
    svg(picture, "line", { class: "gc-axis", x1: px(v), x2: px(v), y1: box.bottom, y2: box.bottom + 4 });
    svg(picture, "text", { x: px(v), y: box.bottom + 16, "text-anchor": "middle" }, short(v));
  }
  svg(picture, "line", { class: "gc-axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
  if (xLabel) svg(picture, "text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, xLabel);
  if (yLabel)
    svg(
      picture,
      "text",
      { transform: `translate(11 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
      yLabel,
    );
  const groups = series.map((s) => drawSeries(picture, s, px, py));
  chart.body.replaceChildren(picture);
  Object.assign(chart, { root: picture, box, px, unpx, py, groups, cursorLine: null });
  chart.over = svg(picture, "g");
  drawLegend(chart, legend && series.length > 0 ? series : []);
  listen(chart, onPoint);
  placeCursor(chart);
  if (chart.at) tell(chart, chart.at);
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
  colourOf(group, s.colour);
  const dash = s.dash ? { "stroke-dasharray": s.dash } : {};
  for (const [x, y] of [...(s.faint ?? []), ...(s.raw ? [[s.x, s.raw]] : [])])
    svg(group, "path", { class: "gc-thin", d: path(x, y, px, py), ...dash });
  if (s.low && s.high) {
    const whole = s.x.map((_, i) => i).filter((i) => py(s.low[i]) !== null && py(s.high[i]) !== null);
    const ring = [...whole.map((i) => [s.x[i], s.high[i]]), ...whole.reverse().map((i) => [s.x[i], s.low[i]])];
    if (ring.length)
      svg(group, "path", {
        class: "gc-band",
        d: `M${ring.map(([x, y]) => `${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("L")}Z`,
      });
  }
  const many = s.x.length > 5 * DOTS_UP_TO && !s.raw;
  svg(group, "path", { class: "gc-line", d: path(s.x, s.y, px, py), ...dash }).style.strokeWidth = many ? 1.3 : 2;
  const alone = (i) =>
    py(s.y[i]) !== null && (i === 0 || py(s.y[i - 1]) === null) && (i === s.x.length - 1 || py(s.y[i + 1]) === null);
  s.x.forEach((x, i) => {
    if (py(s.y[i]) !== null && (s.x.length <= DOTS_UP_TO || alone(i)))
      svg(group, "circle", { class: "gc-dot", cx: px(x), cy: py(s.y[i]), r: 2.5 });
  });
  return group;
}

/** Black is the ink of the scheme, so that it can be seen in the dark. */
function colourOf(node, colour) {
  node.style.setProperty("--gc-colour", colour === "#000000" ? "var(--gc-ink)" : colour);
}

function key(parent, s) {
  const box = svg(parent, "svg", { class: "gc-key gc-s", viewBox: "0 0 18 8" });
  colourOf(box, s.colour);
  svg(box, "path", { class: "gc-line", d: "M0 4H18", ...(s.dash ? { "stroke-dasharray": s.dash } : {}) });
}

function drawLegend(chart, series) {
  chart.legend.replaceChildren();
  chart.legend.hidden = series.length === 0;
  series.forEach((s, i) => {
    const item = html(chart.legend, "li");
    key(item, s);
    html(item, "span", "", s.label);
    item.onmouseenter = () => chart.groups.forEach((g, j) => g.classList.toggle("gc-dim", j !== i));
    item.onmouseleave = () => chart.groups.forEach((g) => g.classList.remove("gc-dim"));
  });
}

/** The mark on the x axis that `cursor` sets. */
export function placeCursor(chart) {
  chart.cursorLine?.remove();
  chart.cursorLine = null;
  if (chart.cursor === null || !chart.root) return;
  const at = chart.px(chart.cursor);
  chart.cursorLine = svg(chart.root, "line", {
    class: "gc-cursor",
    x1: at,
    x2: at,
    y1: chart.box.top,
    y2: chart.box.bottom,
  });
}

/** The drawn point nearest to a place in the picture. */
function pick(chart, left, top) {
  let [best, least] = [null, Infinity];
  chart.options.series.forEach((s, series) => {
    [[null, s.x, s.y], ...(s.faint ?? []).map(([x, y], j) => [j, x, y])].forEach(([faint, x, y]) => {
      if (!x.length) return;
      const index = nearest(x, chart.unpx(left));
      const at = chart.py(y[index]);
      if (at === null) return;
      const far = Math.hypot((chart.px(x[index]) - left) * 1.5, at - top) + (faint === null ? 0 : 4);
      if (far < least) [best, least] = [{ series, faint, index, x: x[index], y: y[index] }, far];
    });
  });
  return best;
}

function listen(chart, onPoint) {
  const root = chart.root;
  const here = (event) => {
    const frame = root.getBoundingClientRect();
    return pick(chart, event.clientX - frame.left, event.clientY - frame.top);
  };
  root.classList.toggle("gc-clicks", Boolean(onPoint));
  root.onpointermove = (event) => tell(chart, here(event));
  root.onpointerleave = () => tell(chart, null);
  root.onblur = () => tell(chart, null);
  root.onclick = (event) => {
    const point = here(event);
    if (point && onPoint) onPoint(point);
  };
  root.onkeydown = (event) => {
    const { series } = chart.options;
    if (event.key === "Escape") tell(chart, null);
    if (event.key === "Enter" && chart.at && onPoint) onPoint(chart.at);
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!moves || !series.length) return;
    event.preventDefault();
    tell(
      chart,
      chart.at ? moved(chart.at, series, moves) : moved({ series: 0, index: 0, x: series[0].x[0] }, series, [0, 0]),
    );
  };
}

function moved(at, series, [across, along]) {
  const next = (at.series + across + series.length) % series.length;
  const { x, y } = series[next];
  const index = Math.min(Math.max(nearest(x, at.x) + along, 0), x.length - 1);
  return { series: next, faint: null, index, x: x[index], y: y[index] };
}

/** The tooltip and the marks of a point, or none. */
function tell(chart, point) {
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
    colourOf(mark, series[point.series].colour);
  }
  const rows = told(series, point, chart);
  chart.tip.replaceChildren();
  html(chart.tip, "b", "", `${point.x.toLocaleString("en")} ${xLabel}`);
  for (const row of rows.slice(0, MOST_TOLD)) {
    const line = html(chart.tip, "div", row.picked ? "gc-picked" : "");
    key(line, row.s);
    html(line, "span", "", row.s.label);
    html(line, "span", "", row.words);
  }
  if (rows.length > MOST_TOLD) html(chart.tip, "div", "", `and ${rows.length - MOST_TOLD} more`);
  placeTip(chart, left);
}

/** A row for each line that has a value at the point, those nearest to it first, as many as fit from top to bottom. */
function told(series, point, chart) {
  const rows = series.flatMap((s, j) => {
    if (!s.x.length) return [];
    const i = j === point.series && point.faint === null ? point.index : nearest(s.x, point.x);
    const y = (s.raw ?? s.y)[i];
    if (y === null || (i === 0 && point.x < s.x[0]) || (i === s.x.length - 1 && point.x > s.x[i])) return [];
    const wide = s.low && s.high && s.low[i] !== null && s.high[i] !== null && s.low[i] !== s.high[i];
    const words = short(y) + (wide ? ` [${short(s.low[i], 3)}, ${short(s.high[i], 3)}]` : "");
    return [{ s, words, y, picked: j === point.series }];
  });
  const far = (row) => Math.abs((chart.py(row.y) ?? 0) - (chart.py(point.y) ?? 0));
  rows.sort((a, b) => far(a) - far(b));
  const shown = rows.slice(0, MOST_TOLD).sort((a, b) => b.y - a.y);
  return [...shown, ...rows.slice(MOST_TOLD)];
}

/** The tooltip beside a place, inside the element. */
export function placeTip(chart, left) {
  const { tip, element } = chart;
  const fits = left + 14 + tip.offsetWidth < element.clientWidth;
  tip.style.left = `${fits ? left + 14 : Math.max(0, left - 14 - tip.offsetWidth)}px`;
  // A small chart would vanish under its tooltip, so that one stands above it.
  const above = chart.body.clientHeight < 200;
  tip.style.top = `${chart.body.offsetTop + (above ? -tip.offsetHeight : 10)}px`;
}

/**
 * A symmetric matrix over agents as coloured cells: vermilion below the middle, blue above it, the paper's grey at it.
 * @param {HTMLElement} element drawn into, as a square of at most `size` pixels
 * @param {object} options
 * @param {string[]} options.labels one for each row and column
 * @param {(number|null)[][]} options.values null is a gap
 * @param {number} [options.low] the value with the full colour on one side, -1 unless told
 * @param {number} [options.high] 1 unless told
 * @param {number} [options.size] 360 unless told
 */
export function heatMap(element, options) {
  const chart = mount(element, drawCells);
  chart.options = options;
  if (chart.cells && chart.cells.length === options.labels.length && chart.width === element.clientWidth)
    fillCells(chart);
  else chart.draw();
}

function drawCells(chart) {
  const { labels, size = 360 } = chart.options;
  chart.width = chart.element.clientWidth;
  const margin = 12 + 6.2 * Math.max(...labels.map((label) => label.length), 1);
  const side = Math.min(size, Math.max(chart.width, 160)) - margin;
  const cell = side / Math.max(labels.length, 1);
  const every = Math.ceil(13 / cell); // labels that would touch are left out
  const picture = root(margin + side + 30, `matrix over ${labels.length} agents`);
  chart.cells = labels.map((_, row) =>
    labels.map((_, column) => {
      const at = { x: margin + column * cell, y: margin + row * cell };
      const box = svg(picture, "rect", {
        class: "gc-cell",
        ...at,
        width: cell,
        height: cell,
        "stroke-width": cell > 8 ? 1 : 0.3,
      });
      const text =
        cell < 26 ? null : svg(picture, "text", { class: "gc-value", x: at.x + cell / 2, y: at.y + cell / 2 });
      box.onpointerenter = () => tellCell(chart, [row, column]);
      return { box, text, at };
    }),
  );
  labels.forEach((label, i) => {
    if (i % every) return;
    const middle = margin + (i + 0.5) * cell;
    svg(picture, "text", { x: margin - 5, y: middle + 4, "text-anchor": "end" }, label);
    svg(picture, "text", { x: middle, y: margin - 5, "text-anchor": "middle" }, label);
  });
  Object.assign(chart, { root: picture, cell, margin });
  chart.legend.hidden = true;
  drawScale(chart, margin, side);
  chart.body.replaceChildren(picture);
  chart.over = svg(picture, "g");
  picture.onpointerleave = picture.onblur = () => tellCell(chart, null);
  picture.onkeydown = (event) => {
    const [down, right] =
      { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    const clip = (v) => Math.min(Math.max(v, 0), labels.length - 1);
    tellCell(chart, chart.at ? [clip(chart.at[0] + down), clip(chart.at[1] + right)] : [0, 0]);
  };
  fillCells(chart);
}

/** The colour of a value on the way from `low` to `high`. */
function shade(value, low, high) {
  if (value === null || !Number.isFinite(value)) return "transparent";
  const middle = (low + high) / 2;
  const share = Math.min(Math.abs(value - middle) / ((high - low) / 2), 1);
  return `color-mix(in oklab, ${value < middle ? "#d55e00" : "#0072b2"} ${(100 * share).toFixed(1)}%, var(--gc-zero))`;
}

function drawScale(chart, margin, side) {
  const { low = -1, high = 1 } = chart.options;
  const top = margin + side + 8;
  for (let i = 0; i < 40; i++) {
    const box = svg(chart.root, "rect", { x: margin + (i * side) / 40, y: top, width: side / 40 + 0.5, height: 7 });
    box.style.fill = shade(low + ((i + 0.5) / 40) * (high - low), low, high);
  }
  [low, (low + high) / 2, high].forEach((v, i) =>
    svg(
      chart.root,
      "text",
      { x: margin + (i * side) / 2, y: top + 19, "text-anchor": ["start", "middle", "end"][i] },
      short(v),
    ),
  );
}

function fillCells(chart) {
  const { values, low = -1, high = 1 } = chart.options;
  chart.cells.forEach((row, i) =>
    row.forEach(({ box, text }, j) => {
      const value = values[i]?.[j] ?? null;
      box.style.fill = i === j ? "var(--gc-faint)" : shade(value, low, high);
      if (!text) return;
      const words = i === j || value === null ? "" : value.toFixed(2).replace("-", "−");
      text.textContent = chart.cell < 38 ? words.replace("0.", ".") : words;
      text.classList.toggle("gc-light", value !== null && Math.abs(value - (low + high) / 2) > 0.3 * (high - low));
    }),
  );
  if (chart.at) tellCell(chart, chart.at);
}

function tellCell(chart, at) {
  chart.at = at;
  chart.over.replaceChildren();
  chart.tip.hidden = !at;
  if (!at) return;
  const [row, column] = at;
  const { labels, values } = chart.options;
  const place = chart.cells[row][column].at;
  svg(chart.over, "rect", { class: "gc-here", ...place, width: chart.cell, height: chart.cell });
  const value = values[row]?.[column] ?? null;
  const words = row === column ? "itself" : value === null ? "no value" : value.toFixed(3).replace("-", "−");
  chart.tip.textContent = `${labels[row]} and ${labels[column]}: ${words}`;
  placeTip(chart, place.x + chart.cell);
  chart.tip.style.top = `${chart.body.offsetTop + place.y}px`;
}
