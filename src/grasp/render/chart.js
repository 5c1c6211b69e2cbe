/**
 * Shared by all charts: style sheet, SVG elements, ticks, tooltip and cursor. `line_chart`, `heat_map` and `strip_chart`
 * build on it. They bring their own style, so the live page serves them and the report of `grasp compare` inlines them.
 * Text enters the document as text, never as markup.
 *
 * Colours follow the document's `color-scheme`, sizes the element's width. Every chart takes the keyboard focus. Calling
 * a chart again with the same element redraws it in place.
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
const charts = new WeakMap(); // element -> its chart

let isStyled = false;
function addStyle() {
  if (isStyled) return;
  const sheet = new CSSStyleSheet(); // allowed by a policy that forbids inline styles
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  isStyled = true;
}

/** Append an HTML element. */
export function html(parent, name, className = "", text = "") {
  const element = parent.appendChild(document.createElement(name));
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

/** Append an SVG element. */
export function svg(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return parent.appendChild(element);
}

/** An empty picture that takes the keyboard focus. */
export function picture(height, label) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const attributes = { height, tabindex: 0, role: "img", "aria-label": label };
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** 1500000 -> 1.5M, 0.25 -> 0.25, 3e-8 -> 3e-8. @param {number} value @param {number} [digits] @returns {string} */
export function short(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const [unit, name] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const isTiny = size > 0 && size < 1e-3;
  const text = isTiny
    ? value.toExponential(1).replace(".0e", "e")
    : `${Number((value / unit).toPrecision(digits))}${name}`;
  return text.replaceAll("-", "−");
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

/** The minimum and maximum over lists of numbers, each replaced by its entry in `fixed` if that is set; never equal. */
export function range(lists, fixed = [], pad = 0, spread = 0.5) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists)
    for (const v of list) if (v !== null && Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  if (low > high) [low, high] = [fixed[0] ?? 0, fixed[1] ?? 1];
  if (low === high && fixed[0] === low) high = low + 1;
  else if (low === high)
    [low, high] = [low - spread * (Math.abs(low) / 5 || 1), high + spread * (Math.abs(high) / 5 || 1)];
  const margin = (high - low) * pad;
  return [fixed[0] ?? low - margin, fixed[1] ?? high + margin];
}

/** Index of the value in ascending `x` nearest to `value`. */
export function nearest(x, value) {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(x[low] - value) <= Math.abs(x[high] - value) ? low : high;
}

/** The element's chart: created once, drawn again whenever its width changes. */
export function mount(element, draw) {
  const known = charts.get(element);
  if (known) return Object.assign(known, { draw: () => draw(known) });
  addStyle();
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

/** Mark `chart.cursor` on the x axis. */
export function drawCursor(chart) {
  chart.cursorLine?.remove();
  chart.cursorLine = null;
  if (chart.cursor === null || !chart.root) return;
  const x = chart.px(chart.cursor);
  chart.cursorLine = svg(chart.root, "line", {
    class: "gc-cursor",
    x1: x,
    x2: x,
    y1: chart.box.top,
    y2: chart.box.bottom,
  });
}

/** Position the tooltip beside `left`, inside the element. */
export function positionTip(chart, left) {
  const { tip, element } = chart;
  const fits = left + 14 + tip.offsetWidth < element.clientWidth;
  tip.style.left = `${fits ? left + 14 : Math.max(0, left - 14 - tip.offsetWidth)}px`;
  // A small chart would vanish under its tooltip, so there the tooltip is above the chart.
  const above = chart.body.clientHeight < 200;
  tip.style.top = `${chart.body.offsetTop + (above ? -tip.offsetHeight : 10)}px`;
}
