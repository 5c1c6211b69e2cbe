/** Values of many agents over time: a row per agent, darker for more. Lines of 27 agents would hide each other. */

import { drawCursor, mount, nearest, picture, positionTip, range, short, svg, ticks } from "/chart.js";

const INK = [16, 122, 190]; // a blue that is visible on white and on black
const TALLEST_ROW = 15;

/**
 * Draw a strip chart.
 * @param {HTMLElement} element drawn into; give it a width
 * @param {object} options
 * @param {string[]} options.labels one per row
 * @param {number[]} options.x ascending
 * @param {((number|null)[]|null)[]} options.values for each x a value per row; null is a gap
 * @param {string} [options.xLabel]
 * @param {number} [options.high] the value that is darkest; the largest by default
 * @param {number} [options.height] of all rows, in pixels
 * @param {(point: {x: number}) => void} [options.onPoint] called with the x that was clicked
 * @returns {{cursor: (x: number|null) => void}} `cursor` marks a value on the x axis without redrawing
 */
export function stripChart(element, options) {
  const chart = mount(element, draw);
  chart.options = options;
  chart.draw();
  return { cursor: (x) => ((chart.cursor = x), drawCursor(chart)) };
}

function draw(chart) {
  const { labels, x, values, xLabel = "", height = 120 } = chart.options;
  const width = (chart.width = Math.max(chart.element.clientWidth, 160));
  const row = Math.min(TALLEST_ROW, height / labels.length);
  const left = 12 + 6.4 * Math.max(...labels.map((label) => label.length));
  const box = { left, right: width - 12, top: 4, bottom: 4 + row * labels.length };
  const [x0, last] = [x[0], Math.max(x.at(-1), x[0] + 1)];
  const px = (v) => box.left + ((v - x0) / (last - x0)) * (box.right - box.left);
  const unpx = (p) => x0 + ((p - box.left) / (box.right - box.left)) * (last - x0);
  const vectors = values.map((vector) => vector ?? []);
  const high = chart.options.high ?? range(vectors, [0])[1];
  const root = picture(box.bottom + (xLabel ? 34 : 20), `${labels.length} rows over ${xLabel}`);
  const every = Math.ceil(12 / row); // labels that would overlap are omitted
  labels.forEach((label, i) => {
    if (i % every === 0)
      svg(root, "text", { x: left - 6, y: box.top + (i + 0.5) * row + 4, "text-anchor": "end" }, label);
  });
  for (const v of ticks(x0, last, (box.right - box.left) / 60))
    svg(root, "text", { x: px(v), y: box.bottom + 14, "text-anchor": "middle" }, short(v));
  if (xLabel) svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 30, "text-anchor": "middle" }, xLabel);
  svg(root, "text", { x: box.right, y: box.bottom + 30, "text-anchor": "end" }, `darkest ${short(high, 3)}`);
  chart.legend.hidden = true;
  chart.body.className = "gc-stack";
  chart.body.replaceChildren(paint(chart.options, box, row, high, unpx), root);
  Object.assign(chart, { root, box, px, unpx, row, cursorLine: null, over: svg(root, "g") });
  listen(chart);
  drawCursor(chart);
}

/** A canvas in which every pixel column shows the sample nearest to it. */
function paint({ labels, x, values }, box, row, high, unpx) {
  const canvas = document.createElement("canvas");
  const width = Math.max(1, Math.round(box.right - box.left));
  Object.assign(canvas, { width, height: labels.length });
  Object.assign(canvas.style, {
    left: `${box.left}px`,
    top: `${box.top}px`,
    width: `${width}px`,
    height: `${row * labels.length}px`,
  });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, labels.length);
  for (let column = 0; column < width; column++) {
    const sample = nearest(x, unpx(box.left + column));
    labels.forEach((_, i) => {
      const darkness = Math.min(Math.max((values[sample]?.[i] ?? 0) / (high || 1), 0), 1);
      image.data.set([...INK, 255 * darkness], 4 * (i * width + column));
    });
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function listen(chart) {
  const { labels, x, values, onPoint } = chart.options;
  const { root, tip, box } = chart;
  const sampleAt = (event) => nearest(x, chart.unpx(event.clientX - root.getBoundingClientRect().left));
  const hide = () => ((tip.hidden = true), chart.over.replaceChildren());
  root.onpointermove = (event) => {
    const i = Math.floor((event.clientY - root.getBoundingClientRect().top - box.top) / chart.row);
    hide();
    if (!(i in labels)) return;
    const sample = sampleAt(event);
    const y = box.top + i * chart.row;
    svg(chart.over, "rect", { class: "gc-here", x: box.left, y, width: box.right - box.left, height: chart.row });
    tip.hidden = false;
    tip.textContent = `agent ${labels[i]} at ${x[sample].toLocaleString("en")}: ${short(values[sample]?.[i] ?? null)}`;
    positionTip(chart, chart.px(x[sample]));
  };
  root.onpointerleave = root.onblur = hide;
  root.classList.toggle("gc-clicks", Boolean(onPoint));
  root.onclick = (event) => onPoint?.({ x: x[sampleAt(event)] });
}
