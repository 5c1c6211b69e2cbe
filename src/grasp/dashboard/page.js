/** The live page: polls the server (faster while files are first read) and redraws only what has changed. */

import { showConfiguration } from "/configuration.js";
import { showConflict, startConflict } from "/conflict.js";
import { showCurves } from "/curves.js";
import { byId, count, fetchJson, fillSelect, hint, make, NO_SERVER, ServerError } from "/dom.js";
import { startReplay } from "/replay.js";
import { showRunList } from "/run_list.js";

const PERIOD = 2000; // milliseconds between two polls
const PERIOD_READING = 300; // while files are read for the first time
const FEW = 24; // up to so many runs are all shown without a selection
const NEWEST = 8; // of more runs, so many are shown

/** The reader's selection. It is kept in the address, so that a link shows the same. */
const selection = { runs: null, run: null, seed: null, metric: null };
/** The latest responses. `refresh` counts refreshes: a response to an earlier one is dropped. */
const page = { runs: [], curves: null, directory: "", isReading: true, isPolling: false, isDrawn: false, refresh: 0 };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  selection.runs = given.has("runs") ? new Set(given.get("runs").split(",").filter(Boolean)) : null;
  selection.run = given.get("run");
  selection.seed = given.has("seed") ? Number(given.get("seed")) : null;
  selection.metric = given.get("metric");
}

function writeAddress() {
  const parts = selection.runs ? [`runs=${[...selection.runs].join(",")}`] : [];
  if (selection.run) parts.push(`run=${selection.run}`, `seed=${selection.seed ?? ""}`);
  if (selection.metric) parts.push(`metric=${selection.metric}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

const newestFirst = () => [...page.runs].sort((a, b) => b.written - a.written);

/** The ids of the runs to draw: the selected ones, else all if they are few, else the newest. */
function shownIds() {
  if (selection.runs) return selection.runs;
  return new Set((page.runs.length <= FEW ? page.runs : newestFirst().slice(0, NEWEST)).map((run) => run.id));
}

/** The run of the conflict view: the selected one, else a shown one, with per-agent gradients, that is live. */
function focusedRun() {
  const known = page.runs.find((run) => run.id === selection.run);
  if (known) return known;
  const ids = shownIds();
  const rank = (run) => 4 * ids.has(run.id) + 2 * (run.compares && !run.problem) + (run.state === "live");
  return newestFirst().reduce((best, run) => (best && rank(best) >= rank(run) ? best : run), null);
}

async function keepPolling() {
  await poll();
  setTimeout(keepPolling, page.isReading ? PERIOD_READING : PERIOD);
}

async function poll() {
  if (page.isPolling || document.hidden) return;
  page.isPolling = true;
  try {
    const { data, isNew } = await fetchJson("/api/runs");
    [page.runs, page.directory, page.isReading] = [data.runs, data.directory, data.reading !== null];
    showStatus(data);
    if (isNew || !page.isDrawn) await draw();
  } catch (error) {
    showError(error);
  } finally {
    page.isPolling = false;
  }
}

/** Draw everything for the current selection. */
async function draw() {
  const refresh = ++page.refresh;
  const isEmpty = page.runs.length === 0;
  byId("notice").hidden = !isEmpty || page.isReading;
  for (const id of ["curves", "conflict", "config"]) byId(id).hidden = isEmpty;
  if (isEmpty) return void (drawList(), showEmpty());
  const run = focusedRun();
  if (run.id !== selection.run || !run.seeds.includes(selection.seed))
    [selection.run, selection.seed] = [run.id, run.seeds[0] ?? null];
  drawList();
  const ids = shownIds();
  const existing = page.runs.map((one) => one.id).filter((id) => ids.has(id));
  const curves = await fetchJson(`/api/curves?runs=${existing.join(",")}`);
  if (refresh !== page.refresh) return;
  page.curves = curves.data.runs;
  drawList(); // the colours are known now
  drawCurves();
  await drawRun(run, refresh);
  page.isDrawn = true;
}

const redraw = () => draw().catch(showError);

function showStatus({ runs, directory, reading }) {
  const live = runs.filter((run) => run.state === "live" || run.state === "starting").length;
  const percent = reading === null ? "" : ` · reading ${Math.round(100 * reading)} %`;
  byId("status").className = "";
  byId("status").textContent = `${count(runs.length, "run")} in ${directory}, ${live} live${percent}`;
}

function showError(error) {
  byId("status").className = "lost";
  byId("status").textContent = error instanceof ServerError ? error.message : NO_SERVER;
}

function showEmpty() {
  byId("notice").replaceChildren(
    make("h2", { textContent: `No runs in ${page.directory} yet` }),
    make("p", { textContent: "Run directories appear here while they are written. Start one with:" }),
    make("code", { textContent: `grasp train grasp-mappo mpe/simple_spread --out ${page.directory}/first` }),
  );
}

function drawList() {
  const ids = shownIds();
  const colours = new Map((page.curves ?? []).map((run) => [run.id, run.colour]));
  const state = { isShown: (id) => ids.has(id), colourOf: (id) => colours.get(id), selected: selection.run };
  showRunList(page.runs, state, { onShow: selectShown, onSelect: selectRun });
}

function drawCurves() {
  showCurves(page.curves, selection.metric, page.isReading, selectMetric);
}

/** Draw the conflict view and the configuration of one run. */
async function drawRun(run, refresh) {
  const ids = shownIds();
  const offered = page.runs.filter((one) => ids.has(one.id) || one.id === run.id);
  const named = offered.map((one) => [one.id, `${one.label} · ${one.env}`]);
  fillSelect(byId("run"), named, run.id);
  const seeds = run.seeds.map((seed) => [String(seed), `seed ${seed}`]);
  fillSelect(byId("seed"), seeds, String(selection.seed));
  const hasStarted = selection.seed !== null;
  byId("seed").hidden = !hasStarted;
  writeAddress();
  const [conflict, config] = await Promise.all([
    hasStarted ? fetchJson(`/api/conflict?run=${run.id}&seed=${selection.seed}`) : { data: null },
    fetchJson(`/api/config?run=${run.id}`),
  ]);
  if (refresh !== page.refresh) return;
  showConflict(conflict.data, hasStarted ? "" : `${run.label} has written no metrics yet.`, run.state === "live");
  showConfiguration(config.data);
}

function selectShown(ids, isOn) {
  selection.runs = new Set(shownIds());
  for (const id of ids) isOn ? selection.runs.add(id) : selection.runs.delete(id);
  writeAddress();
  redraw();
}

function selectRun(id, seed = null) {
  [selection.run, selection.seed] = [id, seed];
  writeAddress();
  redraw();
}

function selectMetric(metric) {
  selection.metric = metric;
  writeAddress();
  drawCurves();
}

function start() {
  readAddress();
  startConflict();
  startReplay();
  byId("curves-hint").replaceWith(
    hint(
      "Greedy evaluations: a thin line per seed, a thick line and a band over seeds. " +
        "Click a point to play an episode of that policy.",
    ),
  );
  byId("filter").oninput = drawList;
  byId("run").onchange = (event) => selectRun(event.target.value);
  byId("seed").onchange = (event) => selectRun(selection.run, Number(event.target.value));
  addEventListener("hashchange", () => (readAddress(), redraw()));
  document.addEventListener("visibilitychange", poll);
  keepPolling();
}

start();
