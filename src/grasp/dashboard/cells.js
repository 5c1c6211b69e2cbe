/** A chart for many agents: a row for each, time to the right, darker for more. Lines of 27 agents hide each other. */

import { mount, placeCursor, placeTip, range, root as frame, short, svg, ticks } from "/charts.js";

const INK = [16, 122, 190]; // blue enough on white and on black
const TALLEST_ROW = 15;

/**
 * @param {HTMLElement} element drawn into; give it a width
 * @param {object} options
 * @param {string[]} options.labels one for each row
 * @param {number[]} options.x ascending
 * @param {((number|null)[]|null)[]} options.values for each x a value for each row; null is a gap
 * @param {string} [options.xLabel]
 * @param {number} [options.high] the value that is darkest; the largest, unless told
 * @param {number} [options.height] of all rows, in pixels
 * @param {(point: {x: number}) => void} [options.onPoint] a moment was clicked
 * @returns {{cursor: (x: number|null) => void}}
 */
export function stripChart(element, options) {
  const chart = mount(element, draw);
  chart.options = options;
  chart.draw();
  return { cursor: (x) => ((chart.cursor = x), placeCursor(chart)) };
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
  const high =
    chart.options.high ??
    range(
      values.map((vector) => vector ?? []),
      [0],
    )[1];
  const root = frame(box.bottom + (xLabel ? 34 : 20), `${labels.length} rows over ${xLabel}`);
  const every = Math.ceil(12 / row);
  labels.forEach((label, i) => {
    if (i % every === 0)
      svg(root, "text", { x: left - 6, y: box.top + (i + 0.5) * row + 4, "text-anchor": "end" }, label);
  });
  for (const v of ticks(x0, last, (box.right - box.left) / 60)) {
    svg(root, "text", { x: px(v), y: box.bottom + 14, "text-anchor": "middle" }, short(v));
  }
  if (xLabel) svg(root, "text", { x: (box.left + box.right) / 2, y: box.bottom + 30, "text-anchor": "middle" }, xLabel);
  svg(root, "text", { x: box.right, y: box.bottom + 30, "text-anchor": "end" }, `darkest ${short(high, 3)}`);
  chart.legend.hidden = true;
  chart.body.className = "gc-stack";
  chart.body.replaceChildren(paint(chart.options, box, row, high, unpx), root);
  Object.assign(chart, { root, box, px, unpx, row, cursorLine: null, over: svg(root, "g") });
  listen(chart);
  placeCursor(chart);
}

/** Every pixel column shows the sample nearest to it. */
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
  const picture = context.createImageData(width, labels.length);
  for (let column = 0, sample = 0; column < width; column++) {
    while (
      sample < x.length - 1 &&
      Math.abs(x[sample + 1] - unpx(box.left + column)) <= Math.abs(x[sample] - unpx(box.left + column))
    )
      sample++;
    labels.forEach((_, i) => {
      const share = Math.min(Math.max((values[sample]?.[i] ?? 0) / (high || 1), 0), 1);
      picture.data.set([...INK, 255 * share], 4 * (i * width + column));
    });
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

function listen(chart) {
  const { labels, x, values, onPoint } = chart.options;
  const moment = (event) => {
    const at = chart.unpx(event.clientX - chart.root.getBoundingClientRect().left);
    return x.reduce((best, v, i) => (Math.abs(v - at) < Math.abs(x[best] - at) ? i : best), 0);
  };
  const hide = () => ((chart.tip.hidden = true), chart.over.replaceChildren());
  chart.root.onpointermove = (event) => {
    const i = Math.floor((event.clientY - chart.root.getBoundingClientRect().top - chart.box.top) / chart.row);
    hide();
    if (!(i in labels)) return;
    const at = moment(event);
    const value = values[at]?.[i] ?? null;
    const { left, right, top } = chart.box;
    svg(chart.over, "rect", {
      class: "gc-here",
      x: left,
      y: top + i * chart.row,
      width: right - left,
      height: chart.row,
    });
    chart.tip.hidden = false;
    chart.tip.textContent = `agent ${labels[i]} at ${x[at].toLocaleString("en")}: ${short(value)}`;
    placeTip(chart, chart.px(x[at]));
  };
  chart.root.onpointerleave = chart.root.onblur = hide;
  chart.root.classList.toggle("gc-clicks", Boolean(onPoint));
  chart.root.onclick = (event) => onPoint?.({ x: x[moment(event)] });
}
