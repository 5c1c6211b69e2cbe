/** The live page: asks every two seconds (sooner at first) with what it already has, and draws only what has changed. */

import { lineChart } from "/charts.js";
import { showConflict, startConflict } from "/conflict.js";
import { ask, byId, fill, hint, make } from "/dom.js";
import { groupRow, remember, runRow } from "/list.js";
import { openReplay, startReplay } from "/replay.js";

const PERIOD = 2000;
const SOON = 300; // while files are read for the first time, there is more to show at every moment
const FEW = 24; // runs that are all shown unless some are chosen
const NEWEST = 8; // runs that are shown of more

/** What the reader chose; it stands in the address, so that a link shows the same. */
const chosen = { runs: null, run: null, seed: null, metric: null };
const page = { runs: [], curves: null, busy: false, drawn: false, turn: 0, directory: "", isReading: true };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  chosen.runs = given.has("runs") ? new Set(given.get("runs").split(",").filter(Boolean)) : null;
  chosen.run = given.get("run");
  chosen.seed = given.has("seed") ? Number(given.get("seed")) : null;
  chosen.metric = given.get("metric");
}

function writeAddress() {
  const parts = chosen.runs ? [`runs=${[...chosen.runs].join(",")}`] : [];
  if (chosen.run) parts.push(`run=${chosen.run}`, `seed=${chosen.seed ?? ""}`);
  if (chosen.metric) parts.push(`metric=${chosen.metric}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

const byAge = () => [...page.runs].sort((a, b) => b.written - a.written);

/** The ids to show: those chosen; without a choice every run if they are few, else the newest. */
function shown() {
  if (chosen.runs) return chosen.runs;
  return new Set((page.runs.length <= FEW ? page.runs : byAge().slice(0, NEWEST)).map((run) => run.id));
}

/** The run of the conflict view: the one chosen, else one that has something to show there, a live one first. */
function theRun() {
  const known = page.runs.find((run) => run.id === chosen.run);
  if (known) return known;
  const ids = shown();
  const rank = (run) => 2 * (run.compares && !run.problem) + (run.state === "live") + 4 * ids.has(run.id);
  return byAge().reduce((best, run) => (best && rank(best) >= rank(run) ? best : run), null);
}

async function poll() {
  if (page.busy || document.hidden) return;
  page.busy = true;
  try {
    const { data, isNew } = await ask("/api/runs");
    page.runs = data.runs;
    showStatus(data);
    if (isNew || !page.drawn) await refresh();
  } catch (error) {
    showLost(error);
  } finally {
    page.busy = false;
  }
}

/** Everything, for what is chosen now; an answer that was overtaken by another choice is dropped. */
async function refresh() {
  const turn = ++page.turn;
  byId("notice").hidden = page.runs.length > 0;
  for (const id of ["curves", "conflict", "config"]) byId(id).hidden = page.runs.length === 0;
  if (page.runs.length === 0) return void (showRuns(), showEmpty());
  const ids = shown();
  const run = theRun();
  if (run.id !== chosen.run || !run.seeds.includes(chosen.seed))
    [chosen.run, chosen.seed] = [run.id, run.seeds[0] ?? null];
  showRuns();
  const list = page.runs.filter((one) => ids.has(one.id)).map((one) => one.id);
  const curves = await ask(`/api/curves?runs=${list.join(",")}`);
  if (turn !== page.turn) return;
  page.curves = curves.data.runs;
  showRuns();
  showCurves();
  await showRun(run, turn);
  page.drawn = true;
}

function showStatus(data) {
  const live = data.runs.filter((run) => run.state === "live" || run.state === "starting").length;
  const counted = `${data.runs.length} run${data.runs.length === 1 ? "" : "s"} in ${data.directory}, ${live} live`;
  const reading = data.reading === null ? "" : ` · reading ${Math.round(100 * data.reading)} %`;
  [page.directory, page.isReading] = [data.directory, data.reading !== null];
  byId("status").className = "";
  byId("status").textContent = counted + reading;
}

function showLost(error) {
  byId("status").className = "lost";
  byId("status").textContent = error.said ? error.message : "no answer from the server; is grasp watch still running?";
}

function showEmpty() {
  byId("notice").replaceChildren(
    make("h2", { textContent: `No runs in ${page.directory} yet` }),
    make("p", {
      textContent: "This page shows run directories as they grow. Start one, and it appears here by itself:",
    }),
    make("code", { textContent: `grasp train grasp-mappo mpe/simple_spread --out ${page.directory}/first` }),
  );
}

function showRuns() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const matches = (run) => !wanted || `${run.label} ${run.env} ${run.name} ${run.state}`.toLowerCase().includes(wanted);
  const groups = Map.groupBy(page.runs.filter(matches), (run) => run.env);
  const colours = new Map((page.curves ?? []).map((run) => [run.id, run.colour]));
  const ids = shown();
  const isChosen = (id) => ids.has(id);
  const rows = [];
  for (const env of [...groups.keys()].sort()) {
    const members = groups.get(env);
    const ticked = members.map((run) => [run.id, isChosen(run.id)]);
    rows.push(remember(`env ${env}`, ticked, () => groupRow(env, members, isChosen, choose)));
    for (const run of members) {
      const facts = { run, isChosen: isChosen(run.id), colour: colours.get(run.id), isHere: run.id === chosen.run };
      rows.push(remember(run.id, facts, () => runRow(facts, choose, focusRun)));
    }
  }
  const holder = byId("runs");
  if (rows.length !== holder.children.length || rows.some((row, i) => row !== holder.children[i]))
    holder.replaceChildren(...rows);
}

function choose(ids, isOn) {
  chosen.runs = new Set(shown());
  for (const id of ids) isOn ? chosen.runs.add(id) : chosen.runs.delete(id);
  writeAddress();
  refresh().catch(showLost);
}

function focusRun(id, seed = null) {
  [chosen.run, chosen.seed] = [id, seed];
  writeAddress();
  refresh().catch(showLost);
}

function showCurves() {
  const withWins = page.curves.some((run) => run.metrics.win_rate);
  showMetric(withWins);
  const holder = byId("charts");
  const groups = Map.groupBy(page.curves, (run) => run.env);
  const names = [...groups.keys()].sort();
  const made = JSON.stringify(names);
  if (holder.dataset.made !== made) holder.replaceChildren(...(names.length ? names.map(envCard) : [none()]));
  holder.dataset.made = made;
  names.forEach((env, i) => drawEnv(holder.children[i], groups.get(env)));
}

const none = () => make("p", { className: "notice", textContent: "No run is chosen: tick some in the list." });

function envCard(env) {
  return make(
    "div",
    { className: "card" },
    make("header", {}, make("h3", { textContent: env }), make("span", { className: "note" })),
    make("div"),
    make("p", { className: "notice", hidden: true }),
  );
}

function showMetric(withWins) {
  const pairs = [
    [null, "win rate"],
    ["return_mean", "return"],
  ];
  byId("metric").hidden = !withWins;
  byId("metric").replaceChildren(
    ...pairs.map(([value, text]) => {
      const button = make("button", {
        type: "button",
        textContent: text,
        onclick: () => ((chosen.metric = value), writeAddress(), showCurves()),
      });
      button.setAttribute("aria-pressed", String(chosen.metric === value));
      return button;
    }),
  );
}

function drawEnv(card, runs) {
  const [head, body, notice] = card.children;
  const known = runs.filter((run) => run.metrics.return_mean || run.metrics.win_rate);
  const metric =
    chosen.metric ?? (known.length && known.every((run) => run.metrics.win_rate) ? "win_rate" : "return_mean");
  const drawn = known.filter((run) => run.metrics[metric]);
  const waiting = runs.filter((run) => !drawn.includes(run));
  const why = page.isReading ? "being read …" : "no evaluation yet.";
  notice.textContent = waiting.length ? `${waiting.map((run) => run.label).join(", ")}: ${why}` : "";
  notice.hidden = !waiting.length;
  body.hidden = !drawn.length;
  head.lastChild.textContent = describeBands(drawn);
  if (!drawn.length) return;
  const series = drawn.map(({ label, colour, dash, metrics }) => {
    const { x, line, low, high, seeds } = metrics[metric];
    return {
      label,
      colour,
      dash,
      x,
      y: line,
      low: seeds.length > 1 ? low : undefined,
      high: seeds.length > 1 ? high : undefined,
      faint: seeds.length > 1 ? seeds : [],
    };
  });
  lineChart(body, {
    series,
    xLabel: "environment steps",
    yLabel: metric === "win_rate" ? "win rate" : "return",
    height: 270,
    yRange: metric === "win_rate" ? [0, 1] : [],
    onPoint: (point) => openReplay(drawn[point.series], point),
  });
}

/** What line and band are: in full where all runs have as many seeds, else as far as all of them share it. */
function describeBands(runs) {
  const statistics = [...new Set(runs.map((run) => run.statistic))];
  if (statistics.length < 2) return statistics.join("");
  const bands = [];
  if (runs.some((run) => run.seeds.length > 2)) bands.push("95 % bootstrap interval");
  if (runs.some((run) => run.seeds.length === 2)) bands.push("range of 2 seeds");
  return `band: ${bands.join(", or ")}`;
}

/** The conflict view and the configuration of one run. */
async function showRun(run, turn) {
  const ids = shown();
  const offered = page.runs.filter((one) => ids.has(one.id) || one.id === run.id);
  fill(
    byId("run"),
    offered.map((one) => [one.id, `${one.label} · ${one.env}`]),
    run.id,
  );
  fill(
    byId("seed"),
    run.seeds.map((seed) => [String(seed), `seed ${seed}`]),
    String(chosen.seed),
  );
  byId("seed").hidden = chosen.seed === null;
  writeAddress();
  const silent = chosen.seed === null;
  const [conflict, config] = await Promise.all([
    silent ? { data: null } : ask(`/api/conflict?run=${run.id}&seed=${chosen.seed}`),
    ask(`/api/config?run=${run.id}`),
  ]);
  if (turn !== page.turn) return;
  const sentence = silent ? `${run.label} has not written anything yet.` : "";
  showConflict(conflict.data, sentence, run.state === "live");
  showConfig(config.data);
}

function showConfig(data) {
  byId("config-name").textContent = data.name;
  const table = (title, rows) =>
    make(
      "table",
      {},
      make("caption", { textContent: title }),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { textContent: text }))))),
    );
  const made = JSON.stringify(data);
  if (byId("tables").dataset.made === made) return;
  byId("tables").dataset.made = made;
  const isHyper = ([name]) => name.startsWith("hyper.");
  const hyper = data.config.filter(isHyper).map(([name, value]) => [name.slice(6), value]);
  const parts = [
    ["run", data.config.filter((row) => !isHyper(row))],
    ["algorithm", hyper],
    ["versions", data.versions],
  ].filter(([, rows]) => rows.length);
  byId("tables").replaceChildren(
    ...(data.problem
      ? [make("p", { className: "notice", textContent: data.problem })]
      : parts.map((part) => table(...part))),
  );
}

function start() {
  readAddress();
  startConflict();
  startReplay();
  byId("curves-hint").replaceWith(
    hint(
      "Greedy evaluations. Thin lines are seeds, the thick line and its band are over seeds. " +
        "Click a point to see an episode of that checkpoint.",
    ),
  );
  byId("filter").oninput = showRuns;
  byId("run").onchange = (event) => focusRun(event.target.value);
  byId("seed").onchange = (event) => focusRun(chosen.run, Number(event.target.value));
  addEventListener("hashchange", () => (readAddress(), refresh().catch(showLost)));
  document.addEventListener("visibilitychange", poll);
  keepPolling();
}

async function keepPolling() {
  await poll();
  setTimeout(keepPolling, page.isReading ? SOON : PERIOD);
}

start();
