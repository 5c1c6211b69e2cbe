/** A symmetric matrix over agents as coloured cells. */

import { mount, picture, positionTip, short, svg } from "/chart.js";

/**
 * Draw a heat map: vermilion below the middle of the scale, blue above it, grey at it.
 * @param {HTMLElement} element drawn into, as a square of at most `size` pixels
 * @param {object} options
 * @param {string[]} options.labels one for each row and column
 * @param {(number|null)[][]} options.values null is a gap
 * @param {number} [options.low] lower end of the colour scale, -1 by default
 * @param {number} [options.high] upper end of the colour scale, 1 by default
 * @param {number} [options.size] in pixels, 360 by default
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
  const every = Math.ceil(13 / cell); // labels that would overlap are omitted
  const root = picture(margin + side + 30, `matrix over ${labels.length} agents`);
  chart.cells = labels.map((_, row) =>
    labels.map((_, column) => {
      const at = { x: margin + column * cell, y: margin + row * cell };
      const box = svg(root, "rect", {
        class: "gc-cell",
        ...at,
        width: cell,
        height: cell,
        "stroke-width": cell > 8 ? 1 : 0.3,
      });
      const text =
        cell < 26 ? null : svg(root, "text", { class: "gc-value", x: at.x + cell / 2, y: at.y + cell / 2 });
      box.onpointerenter = () => showTip(chart, [row, column]);
      return { box, text, at };
    }),
  );
  labels.forEach((label, i) => {
    if (i % every) return;
    const middle = margin + (i + 0.5) * cell;
    svg(root, "text", { x: margin - 5, y: middle + 4, "text-anchor": "end" }, label);
    svg(root, "text", { x: middle, y: margin - 5, "text-anchor": "middle" }, label);
  });
  Object.assign(chart, { root, cell, margin });
  chart.legend.hidden = true;
  drawScale(chart, margin, side);
  chart.body.replaceChildren(root);
  chart.over = svg(root, "g");
  listen(chart);
  fillCells(chart);
}

function listen(chart) {
  const last = chart.options.labels.length - 1;
  const clip = (index) => Math.min(Math.max(index, 0), last);
  chart.root.onpointerleave = chart.root.onblur = () => showTip(chart, null);
  chart.root.onkeydown = (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    showTip(chart, chart.at ? [clip(chart.at[0] + move[0]), clip(chart.at[1] + move[1])] : [0, 0]);
  };
}

/** The colour of a value on the scale from `low` to `high`. */
function shade(value, low, high) {
  if (value === null || !Number.isFinite(value)) return "transparent";
  const middle = (low + high) / 2;
  const fraction = Math.min(Math.abs(value - middle) / ((high - low) / 2), 1);
  const colour = value < middle ? "#d55e00" : "#0072b2";
  return `color-mix(in oklab, ${colour} ${(100 * fraction).toFixed(1)}%, var(--gc-zero))`;
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
      const number = i === j || value === null ? "" : value.toFixed(2).replace("-", "−");
      text.textContent = chart.cell < 38 ? number.replace("0.", ".") : number;
      text.classList.toggle("gc-light", value !== null && Math.abs(value - (low + high) / 2) > 0.3 * (high - low));
    }),
  );
  if (chart.at) showTip(chart, chart.at);
}

/** Outline the cell at [row, column] and show its value; null hides both. */
function showTip(chart, at) {
  chart.at = at;
  chart.over.replaceChildren();
  chart.tip.hidden = !at;
  if (!at) return;
  const [row, column] = at;
  const { labels, values } = chart.options;
  const corner = chart.cells[row][column].at;
  svg(chart.over, "rect", { class: "gc-here", ...corner, width: chart.cell, height: chart.cell });
  const value = values[row]?.[column] ?? null;
  const text = row === column ? "itself" : value === null ? "no value" : value.toFixed(3).replace("-", "−");
  chart.tip.textContent = `${labels[row]} and ${labels[column]}: ${text}`;
  positionTip(chart, corner.x + chart.cell);
  chart.tip.style.top = `${chart.body.offsetTop + corner.y}px`;
}
