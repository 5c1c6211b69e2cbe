/** The learning curves: a chart per environment. */

import { byId, make, rebuild } from "/dom.js";
import { lineChart } from "/line_chart.js";
import { openReplay } from "/replay.js";

/**
 * Draw the curves.
 * @param {object[]} runs as in /api/curves
 * @param {string|null} metric "return_mean"; null is the win rate where there is one
 * @param {boolean} isReading whether files are still being read for the first time
 * @param {(metric: string|null) => void} onMetric called when the reader selects a metric
 */
export function showCurves(runs, metric, isReading, onMetric) {
  showMetrics(
    metric,
    runs.some((run) => run.metrics.win_rate),
    onMetric,
  );
  const groups = Map.groupBy(runs, (run) => run.env);
  const envs = [...groups.keys()].sort();
  const holder = byId("charts");
  rebuild(holder, envs, () => (envs.length ? envs.map(environmentCard) : [nothingSelected()]));
  envs.forEach((env, i) => drawEnvironment(holder.children[i], groups.get(env), metric, isReading));
}

const nothingSelected = () =>
  make("p", { className: "notice", textContent: "No run is selected; tick one in the list." });

function showMetrics(metric, hasWins, onMetric) {
  const button = (value, textContent) => {
    const element = make("button", { type: "button", textContent, onclick: () => onMetric(value) });
    element.setAttribute("aria-pressed", String(metric === value));
    return element;
  };
  byId("metric").hidden = !hasWins;
  byId("metric").replaceChildren(button(null, "win rate"), button("return_mean", "return"));
}

function environmentCard(env) {
  return make(
    "div",
    { className: "card" },
    make("header", {}, make("h3", { textContent: env }), make("span", { className: "note" })),
    make("div"),
    make("p", { className: "notice", hidden: true }),
  );
}

function drawEnvironment(card, runs, selected, isReading) {
  const [head, body, notice] = card.children;
  const evaluated = runs.filter((run) => run.metrics.return_mean || run.metrics.win_rate);
  const allHaveWins = evaluated.length > 0 && evaluated.every((run) => run.metrics.win_rate);
  const metric = selected ?? (allHaveWins ? "win_rate" : "return_mean");
  const drawn = evaluated.filter((run) => run.metrics[metric]);
  const waiting = runs.filter((run) => !drawn.includes(run)).map((run) => run.label);
  notice.textContent = `${waiting.join(", ")}: ${isReading ? "reading …" : "no evaluation yet."}`;
  notice.hidden = !waiting.length;
  body.hidden = !drawn.length;
  head.lastChild.textContent = describeBands(drawn);
  if (!drawn.length) return;
  lineChart(body, {
    series: drawn.map((run) => seriesOf(run, metric)),
    xLabel: "environment steps",
    yLabel: metric === "win_rate" ? "win rate" : "return",
    height: 270,
    yRange: metric === "win_rate" ? [0, 1] : [],
    onPoint: (point) => openReplay(drawn[point.series], point),
  });
}

function seriesOf({ label, colour, dash, metrics }, metric) {
  const { x, line, low, high, seeds } = metrics[metric];
  const overSeeds = seeds.length > 1 ? { low, high, faint: seeds } : {};
  return { label, colour, dash, x, y: line, ...overSeeds };
}

/** The statistic of line and band: in full where all runs share it, else only the kinds of band. */
function describeBands(runs) {
  const statistics = [...new Set(runs.map((run) => run.statistic))];
  if (statistics.length < 2) return statistics.join("");
  const bands = [];
  if (runs.some((run) => run.seeds.length > 2)) bands.push("95 % bootstrap interval");
  if (runs.some((run) => run.seeds.length === 2)) bands.push("range of 2 seeds");
  return `band: ${bands.join(", or ")}`;
}
