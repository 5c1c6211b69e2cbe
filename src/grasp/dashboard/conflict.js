/** The conflict view: what the agents of one run and seed disagree about, over time. */

import { stripChart } from "/cells.js";
import { heatMap, lineChart, short } from "/charts.js";
import { byId, hint, make } from "/dom.js";

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]; // Okabe and Ito's
const MOST_LINES = 6; // agents that are drawn as lines; more are rows
const SMOOTHING = 20;
const FRAMES_PER_SECOND = 12;

const HINTS = {
  cosines: "The cosine of the angle between two agents' gradients: below 0 (orange) what helps one hurts the other.",
  conflict_rate: "The share of pairs of agents whose gradients have a negative cosine.",
  u_ratio: "‖u*‖ / mean ‖g‖: how long the consensus is beside an agent's own gradient; near 0 no direction helps all.",
  weights: "c*: how much each agent's gradient counts in the consensus u* = Σ cᵢ gᵢ; they sum to 1.",
  norms: "‖g‖: the length of each agent's own gradient.",
  factors:
    "Γ: what each agent's step is multiplied by in off-policy runs; " +
    "1 where its gradient is the consensus, near 0 where it is far from it.",
  residual:
    "How far the solver's answer is from optimal (its KKT conditions), relative to the lengths; " +
    "below 1e-5 it is certified, and an exact 0 is drawn at 1e-9.",
  skipped_steps: "Gradient steps that were not taken because a gradient was not finite.",
  uncertified_steps: "Gradient steps whose consensus the solver could not certify.",
  frozen_steps: "Gradient steps in which agents stood still: their gradients cancel, so u* is 0, and Γ with it.",
  clipped_factors: "Factors Γ outside [0, 1], which were clipped; none where u* is the shortest vector.",
};
const PANELS = [
  { name: "conflict_rate", title: "Conflict rate", yRange: [0, 1], smooth: true },
  { name: "u_ratio", title: "‖u*‖ / mean ‖g‖", yRange: [0, null], smooth: true },
  { name: "weights", title: "Weights c* per agent", each: true, yRange: [0, 1], smooth: true },
  { name: "factors", title: "Γ per agent", each: true, yRange: [0, null], smooth: true },
  { name: "norms", title: "‖g‖ per agent", each: true, yRange: [0, null], smooth: true },
  { name: "residual", title: "KKT residual", yLog: true, floor: 1e-9 },
  { name: "skipped_steps", title: "Skipped steps", yRange: [0, null], calm: "none" },
  { name: "uncertified_steps", title: "Uncertified steps", yRange: [0, null], calm: "none" },
  { name: "frozen_steps", title: "Frozen steps", yRange: [0, null], calm: "none" },
  { name: "clipped_factors", title: "Clipped Γ", yRange: [0, null], calm: "none" },
];

const view = { data: null, group: null, place: 0, follows: true, charts: [], timer: 0, shown: "" };

/**
 * Show an answer of /api/conflict, or a sentence in its place.
 * @param {object|null} data
 * @param {string} sentence
 * @param {boolean} isLive whether more may come
 */
export function showConflict(data, sentence, isLive) {
  view.data = data;
  const groups = data?.groups ?? [];
  const words = sentence || (groups.length ? "" : nothing(data, isLive));
  byId("conflict-notice").textContent = words;
  byId("conflict-notice").hidden = !words;
  byId("conflict-body").hidden = Boolean(words);
  byId("certificates").textContent = "";
  byId("group").hidden = groups.length < 2;
  if (words) return void pause();
  byId("group").replaceChildren(
    ...groups.map((g) => make("option", { value: g.name, textContent: g.name || "heads" })),
  );
  view.group = groups.find((g) => g.name === view.group?.name) ?? groups[0];
  byId("group").value = view.group.name;
  showGroup();
}

function nothing(data, isLive) {
  if (!data.iterations && isLive) return "No iteration has been written yet.";
  if (!data.iterations) return `${data.label} has no iterations in its metrics, only evaluations.`;
  const advice = "Choose a run of grasp-mappo, grasp-happo or grasp-qmix.";
  return `${data.label} has no consensus: it does not compare its agents' gradients. ${advice}`;
}

function showGroup() {
  const group = view.group;
  const slider = byId("slider");
  slider.max = group.x.length - 1;
  const which = `${view.data.id} ${view.data.seed} ${group.name}`;
  if (view.shown !== which) [view.follows, view.shown] = [true, which];
  if (view.follows) view.place = group.x.length - 1;
  const total = Object.values(group.statuses).reduce((a, b) => a + b, 0);
  const words = Object.entries(group.statuses).map(([word, count]) => `${count} ${word}`);
  byId("certificates").textContent = total ? `solver: of ${total} sampled answers ${words.join(", ")}` : "";
  const isCondensed = group.num_agents === 0;
  byId("matrix").hidden = isCondensed;
  byId("conflict-body").classList.toggle("alone", isCondensed);
  if (isCondensed) byId("certificates").textContent = "condensed: what each agent had was not kept";
  const panels = PANELS.filter((panel) => panel.name in group);
  const holder = byId("over-time");
  const made = panels.map((panel) => `${panel.name} ${isCalm(panel, group)}`).join();
  if (holder.dataset.made !== made) holder.replaceChildren(...panels.map((panel) => card(panel, isCalm(panel, group))));
  holder.dataset.made = made;
  const drawn = panels.map((panel, i) =>
    isCalm(panel, group) ? null : draw(holder.children[i].lastChild, panel, group),
  );
  view.charts = drawn.filter(Boolean);
  moveTo(Math.min(view.place, group.x.length - 1));
}

function card(panel, calm) {
  const box = make(
    "div",
    { className: calm ? "card calm" : "card" },
    make("header", {}, make("h3", { textContent: panel.title }), hint(HINTS[panel.name])),
  );
  box.dataset.name = panel.name;
  box.append(calm ? make("p", { textContent: panel.calm }) : make("div"));
  return box;
}

/** The running mean over a `SMOOTHING` of the samples: one iteration is noise. */
function smoothed(y) {
  const reach = Math.floor(y.length / SMOOTHING / 2);
  return y.map((here, i) => {
    if (here === null) return null;
    const around = y.slice(Math.max(0, i - reach), i + reach + 1).filter((v) => v !== null);
    return around.reduce((a, b) => a + b, 0) / around.length;
  });
}

/** A count that is zero throughout is a word, not an empty chart. */
const isCalm = (panel, group) => panel.calm && group[panel.name].every((v) => !v);

function draw(element, panel, group) {
  const values = panel.floor
    ? group[panel.name].map((v) => (v === null ? null : Math.max(v, panel.floor)))
    : group[panel.name];
  const agents = Array.from({ length: group.num_agents }, (_, i) => i);
  const onPoint = (point) => jump(nearestMoment(point.x));
  if (panel.each && agents.length > MOST_LINES) {
    return stripChart(element, { labels: agents.map(String), x: group.x, values, xLabel: "steps", onPoint });
  }
  const line = (label, colour, y) =>
    panel.smooth ? { label, colour, x: group.x, y: smoothed(y), raw: y } : { label, colour, x: group.x, y };
  const column = (i) => values.map((vector) => vector?.[i] ?? null);
  const series = panel.each
    ? agents.map((i) => line(`agent ${i}`, COLOURS[i], column(i)))
    : [line(panel.title, COLOURS[0], values)];
  return lineChart(element, {
    series,
    yRange: panel.yRange,
    yLog: panel.yLog,
    xLabel: "steps",
    height: 150,
    legend: Boolean(panel.each),
    onPoint,
  });
}

const nearestMoment = (x) =>
  view.group.x.reduce((best, step, i, all) => (Math.abs(step - x) < Math.abs(all[best] - x) ? i : best), 0);

/** The condensed upper triangle as a whole matrix. */
function matrix(condensed, n) {
  const rows = Array.from({ length: n }, () => Array(n).fill(null));
  let k = 0;
  for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) rows[i][j] = rows[j][i] = condensed?.[k++] ?? null;
  return rows;
}

function moveTo(place) {
  const group = view.group;
  view.place = place;
  byId("slider").value = place;
  const steps = group.x[place];
  byId("moment").textContent = `${short(steps)} steps`;
  byId("slider").setAttribute("aria-valuetext", `${steps.toLocaleString("en")} steps`);
  const labels = Array.from({ length: group.num_agents }, (_, i) => String(i));
  heatMap(byId("heat"), {
    labels,
    values: matrix(group.cosines[place], group.num_agents),
    low: -1,
    high: 1,
    size: 346,
  });
  for (const chart of view.charts) chart.cursor(steps);
}

/** The reader chose a moment: the newest is followed only from the end of the slider. */
function jump(place) {
  view.follows = place === view.group.x.length - 1;
  moveTo(place);
}

function pause() {
  clearInterval(view.timer);
  view.timer = 0;
  byId("play").textContent = "▶";
  byId("play").setAttribute("aria-pressed", "false");
}

function play() {
  if (view.timer) return pause();
  if (!view.group) return;
  if (view.place >= view.group.x.length - 1) jump(0);
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-pressed", "true");
  const stride = Math.max(1, Math.round(view.group.x.length / (FRAMES_PER_SECOND * 15)));
  view.timer = setInterval(() => {
    const last = view.group.x.length - 1;
    jump(Math.min(view.place + stride, last));
    if (view.place === last) pause();
  }, 1000 / FRAMES_PER_SECOND);
}

/** Wire the controls, once. */
export function startConflict() {
  byId("matrix").querySelector("header").append(hint(HINTS.cosines));
  byId("slider").addEventListener("input", (event) => (pause(), jump(Number(event.target.value))));
  byId("play").addEventListener("click", play);
  byId("group").addEventListener("change", (event) => {
    view.group = view.data.groups.find((g) => g.name === event.target.value);
    showGroup();
  });
}
