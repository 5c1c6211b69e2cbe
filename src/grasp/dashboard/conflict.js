/** The conflict view: how far the agents' gradients of one run and seed agree, over training. */

import { short } from "/chart.js";
import { byId, fillSelect, hint, make, rebuild } from "/dom.js";
import { heatMap } from "/heat_map.js";
import { lineChart } from "/line_chart.js";
import { stripChart } from "/strip_chart.js";

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]; // Okabe and Ito's
const MOST_LINES = 6; // up to so many agents are drawn as lines; more are rows of a strip chart
const SMOOTHING = 20; // running means are over one part in so many of the samples
const FRAMES_PER_SECOND = 12;

const HINTS = {
  cosines: "Cosine between the gradients of two agents. Below 0 (orange), a step that helps one hurts the other.",
  conflict_rate: "Fraction of pairs of agents whose gradients have a negative cosine.",
  u_ratio: "Norm of the consensus u* relative to the mean norm of the agents' gradients. Near 0, no direction helps all.",
  weights: "c*: weight of each agent's gradient in the consensus u* = Σ cᵢ gᵢ. The weights sum to 1.",
  norms: "‖g‖: norm of each agent's own gradient.",
  factors:
    "Γ: factor on each agent's step, off-policy only. " +
    "1 where its gradient equals the consensus, near 0 where it is far from it.",
  residual:
    "Relative residual of the solver's optimality conditions (KKT). " +
    "Solutions below 1e-5 are certified; an exact 0 is drawn at 1e-9.",
  skipped_steps: "Gradient steps skipped because a gradient was not finite.",
  uncertified_steps: "Gradient steps whose consensus the solver could not certify.",
  frozen_steps: "Gradient steps that leave the agents unchanged: their gradients cancel, so u* and Γ are 0.",
  clipped_factors: "Factors Γ outside [0, 1], which are clipped. None occur where u* is the shortest vector.",
};
const PANELS = [
  { name: "conflict_rate", title: "Conflict rate", yRange: [0, 1], smooth: true },
  { name: "u_ratio", title: "‖u*‖ / mean ‖g‖", yRange: [0, null], smooth: true },
  { name: "weights", title: "Weights c* per agent", perAgent: true, yRange: [0, 1], smooth: true },
  { name: "factors", title: "Γ per agent", perAgent: true, yRange: [0, null], smooth: true },
  { name: "norms", title: "‖g‖ per agent", perAgent: true, yRange: [0, null], smooth: true },
  { name: "residual", title: "KKT residual", yLog: true, floor: 1e-9 },
  { name: "skipped_steps", title: "Skipped steps", yRange: [0, null], isCount: true },
  { name: "uncertified_steps", title: "Uncertified steps", yRange: [0, null], isCount: true },
  { name: "frozen_steps", title: "Frozen steps", yRange: [0, null], isCount: true },
  { name: "clipped_factors", title: "Clipped Γ", yRange: [0, null], isCount: true },
];

/** `index`: of the selected sample. `isFollowing`: whether new samples of a live run move the selection along. */
const view = { data: null, group: null, index: 0, isFollowing: true, charts: [], timer: 0, shown: "" };

/**
 * Show a response of /api/conflict, or a sentence in its place.
 * @param {object|null} data
 * @param {string} sentence
 * @param {boolean} isLive whether more samples may follow
 */
export function showConflict(data, sentence, isLive) {
  view.data = data;
  const groups = data?.groups ?? [];
  const notice = sentence || (groups.length ? "" : explainEmpty(data, isLive));
  byId("conflict-notice").textContent = notice;
  byId("conflict-notice").hidden = !notice;
  byId("conflict-body").hidden = Boolean(notice);
  byId("certificates").textContent = "";
  byId("group").hidden = groups.length < 2;
  if (notice) return void pause();
  view.group = groups.find((g) => g.name === view.group?.name) ?? groups[0];
  const scopes = groups.map((g) => [g.name, g.name || "heads"]);
  fillSelect(byId("group"), scopes, view.group.name);
  showGroup();
}

function explainEmpty({ iterations, label }, isLive) {
  if (!iterations && isLive) return "No iteration has been written yet.";
  if (!iterations) return `The metrics of ${label} hold only evaluations, no iterations.`;
  const advice = "Select a run of grasp-mappo, grasp-happo or grasp-qmix.";
  return `${label} has no consensus: it does not compare its agents' gradients. ${advice}`;
}

/** Show one consensus: that of the heads, or that of the backbone. */
function showGroup() {
  const group = view.group;
  const last = group.x.length - 1;
  byId("slider").max = last;
  const shown = `${view.data.id} ${view.data.seed} ${group.name}`;
  if (view.shown !== shown) [view.isFollowing, view.shown] = [true, shown];
  if (view.isFollowing) view.index = last;
  const isCondensed = group.num_agents === 0;
  byId("certificates").textContent = isCondensed ? "condensed: values per agent were not kept" : certificates(group);
  byId("matrix").hidden = isCondensed;
  byId("conflict-body").classList.toggle("alone", isCondensed);
  const panels = PANELS.filter((panel) => panel.name in group);
  const holder = byId("over-time");
  const kinds = panels.map((panel) => [panel.name, isZero(panel, group)]);
  rebuild(holder, kinds, () => panels.map((panel) => card(panel, isZero(panel, group))));
  const drawn = panels.map((panel, i) =>
    isZero(panel, group) ? null : drawPanel(holder.children[i].lastChild, panel, group),
  );
  view.charts = drawn.filter(Boolean);
  moveTo(Math.min(view.index, last));
}

function certificates({ statuses }) {
  const total = Object.values(statuses).reduce((a, b) => a + b, 0);
  const counts = Object.entries(statuses).map(([status, number]) => `${number} ${status}`);
  return total ? `solver: of ${total} sampled solutions, ${counts.join(", ")}` : "";
}

/** A count that is zero throughout is shown as the word "none", not as an empty chart. */
const isZero = (panel, group) => panel.isCount && group[panel.name].every((v) => !v);

function card(panel, zero) {
  const box = make(
    "div",
    { className: zero ? "card calm" : "card" },
    make("header", {}, make("h3", { textContent: panel.title }), hint(HINTS[panel.name])),
  );
  box.dataset.name = panel.name;
  box.append(zero ? make("p", { textContent: "none" }) : make("div"));
  return box;
}

/** The running mean: single iterations are noisy. */
function smoothed(y) {
  const reach = Math.floor(y.length / SMOOTHING / 2);
  return y.map((value, i) => {
    if (value === null) return null;
    const around = y.slice(Math.max(0, i - reach), i + reach + 1).filter((v) => v !== null);
    return around.reduce((a, b) => a + b, 0) / around.length;
  });
}

function drawPanel(element, panel, group) {
  const raw = group[panel.name];
  const values = panel.floor ? raw.map((v) => (v === null ? null : Math.max(v, panel.floor))) : raw;
  const onPoint = (point) => select(nearestSample(point.x));
  if (panel.perAgent && group.num_agents > MOST_LINES)
    return stripChart(element, { labels: agentLabels(group), x: group.x, values, xLabel: "steps", onPoint });
  const line = (label, colour, y) =>
    panel.smooth ? { label, colour, x: group.x, y: smoothed(y), raw: y } : { label, colour, x: group.x, y };
  const column = (i) => values.map((vector) => vector?.[i] ?? null);
  const series = panel.perAgent
    ? agentLabels(group).map((label, i) => line(`agent ${label}`, COLOURS[i], column(i)))
    : [line(panel.title, COLOURS[0], values)];
  const { yRange, yLog, perAgent } = panel;
  return lineChart(element, {
    series,
    yRange,
    yLog,
    xLabel: "steps",
    height: 150,
    legend: Boolean(perAgent),
    onPoint,
  });
}

const agentLabels = (group) => Array.from({ length: group.num_agents }, (_, i) => String(i));

const nearestSample = (x) =>
  view.group.x.reduce((best, step, i, all) => (Math.abs(step - x) < Math.abs(all[best] - x) ? i : best), 0);

/** The full matrix of a flat upper triangle. */
function matrix(triangle, n) {
  const rows = Array.from({ length: n }, () => Array(n).fill(null));
  let k = 0;
  for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) rows[i][j] = rows[j][i] = triangle?.[k++] ?? null;
  return rows;
}

/** Show one sample in the heat map and mark it in the charts. */
function moveTo(index) {
  const group = view.group;
  view.index = index;
  byId("slider").value = index;
  const steps = group.x[index];
  byId("step").textContent = `${short(steps)} steps`;
  byId("slider").setAttribute("aria-valuetext", `${steps.toLocaleString("en")} steps`);
  const values = matrix(group.cosines[index], group.num_agents);
  heatMap(byId("heat"), { labels: agentLabels(group), values, low: -1, high: 1, size: 346 });
  for (const chart of view.charts) chart.cursor(steps);
}

/** The reader selects a sample; a live run is followed only from the last one. */
function select(index) {
  view.isFollowing = index === view.group.x.length - 1;
  moveTo(index);
}

function showPlaying(isPlaying) {
  byId("play").textContent = isPlaying ? "❚❚" : "▶";
  byId("play").setAttribute("aria-pressed", String(isPlaying));
}

function pause() {
  clearInterval(view.timer);
  view.timer = 0;
  showPlaying(false);
}

function play() {
  if (view.timer) return pause();
  if (!view.group) return;
  if (view.index >= view.group.x.length - 1) select(0);
  showPlaying(true);
  const stride = Math.max(1, Math.round(view.group.x.length / (FRAMES_PER_SECOND * 15)));
  view.timer = setInterval(() => {
    const last = view.group.x.length - 1;
    select(Math.min(view.index + stride, last));
    if (view.index === last) pause();
  }, 1000 / FRAMES_PER_SECOND);
}

/** Attach the handlers, once. */
export function startConflict() {
  byId("matrix").querySelector("header").append(hint(HINTS.cosines));
  byId("slider").addEventListener("input", (event) => (pause(), select(Number(event.target.value))));
  byId("play").addEventListener("click", play);
  byId("group").addEventListener("change", (event) => {
    view.group = view.data.groups.find((g) => g.name === event.target.value);
    showGroup();
  });
}
