/* The report's page. `html_report.py` inlines grasp/render/line_chart.js before it and provides `lineChart` and `short`. */

const SURE = { clear: "clear result", likely: "not settled", open: "no clear result" };
const MANY = 3; // from this many algorithms on, pairs are shown as a matrix
const BANDS = 4; // up to this many algorithms, profiles have bands
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const drawn = []; // functions that redraw each chart, for resizing and printing

/** Append an element with text to `parent`. */
function put(parent, name, text = "", className = "") {
  const made = parent.appendChild(document.createElement(name));
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function svg(parent, name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return parent ? parent.appendChild(made) : made;
}

/** Round numbers from low to high, about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** The ends of an axis: the fixed ones, else those of the numbers with a margin. */
function ends(numbers, fixed) {
  const known = numbers.filter((x) => x !== null);
  let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
  if (low === high) [low, high] = [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)];
  const margin = (high - low) * 0.05;
  return [fixed[0] ?? low - margin, fixed[1] ?? high + margin];
}

function chart(parent, draw) {
  const box = put(parent, "div", "", "chart");
  const again = () => draw(box);
  drawn.push(again);
  again();
}

const coloured = (series) => series.map((s) => ({ ...s, ...data.styles[s.label] }));

function lines(parent, series, options) {
  chart(parent, (box) => lineChart(box, { series: coloured(series), ...options }));
}

function ink(node, label, properties) {
  const { colour } = data.styles[label];
  for (const name of properties) node.style.setProperty(name, colour === "#000000" ? "var(--ink)" : colour);
}

function algorithm(cell, label) {
  ink(put(cell, "span", "", "key"), label, ["background"]);
  cell.append(label);
}

/** A table; columns in `wrapped` hold text that may wrap. */
function table(parent, header, rows, wrapped = []) {
  const made = put(put(parent, "div", "", "wide"), "table");
  const head = put(put(made, "thead"), "tr");
  header.forEach((name, i) => put(head, "th", name, wrapped.includes(i) ? "wrapped" : ""));
  const body = put(made, "tbody");
  for (const row of rows) {
    const line = put(body, "tr");
    row.forEach((text, i) => {
      const cell = put(line, "td", "", wrapped.includes(i) ? "wrapped" : "");
      if (i === 0 && text in data.styles) algorithm(cell, text);
      else cell.textContent = text ?? "";
    });
  }
  return made;
}

/**
 * Dots for seeds, a bar for the interval and a mark for the statistic; one row per algorithm.
 * @param {{label: string, value: number|null, low: number|null, high: number|null, dots: (number|null)[], text: string}[]} rows
 * @param {{range?: (number|null)[], xLabel?: string}} options
 */
function dotChart(parent, rows, { range: fixed = [], xLabel = "" } = {}) {
  chart(parent, (box) => {
    const width = Math.max(box.clientWidth, 240);
    const left = 14 + 7.3 * Math.max(...rows.map((row) => row.label.length));
    const right = width - 16 - 7 * Math.max(...rows.map((row) => row.text.length));
    const [step, bottom] = [24, rows.length * 24 + 6];
    const [low, high] = ends(rows.flatMap((row) => [row.value, row.low, row.high, ...row.dots]), fixed);
    const at = (x) => left + ((Math.min(Math.max(x, low), high) - low) / (high - low)) * (right - left);
    const description = `${xLabel}: ${rows.map((row) => `${row.label} ${row.text}`).join("; ")}`;
    const root = svg(null, "svg", { class: "dots", height: bottom + (xLabel ? 34 : 20), role: "img", "aria-label": description });
    for (const tick of ticks(low, high, (right - left) / 70)) {
      svg(root, "line", { class: "rule", x1: at(tick), x2: at(tick), y1: 0, y2: bottom });
      svg(root, "text", { class: "tick", x: at(tick), y: bottom + 14, "text-anchor": "middle" }, short(tick));
    }
    if (xLabel) svg(root, "text", { class: "tick", x: (left + right) / 2, y: bottom + 30, "text-anchor": "middle" }, xLabel);
    rows.forEach((row, i) => drawDots(root, row, at, { y: (i + 0.5) * step + 2, left, right }));
    box.replaceChildren(root);
  });
}

function drawDots(root, row, at, { y, left, right }) {
  svg(root, "text", { x: left - 12, y: y + 4, "text-anchor": "end" }, row.label);
  svg(root, "text", { x: right + 12, y: y + 4 }, row.text);
  if (row.low !== null) {
    // A missing end is infinite: JSON has no infinity.
    const bar = svg(root, "line", { class: "bar", x1: at(row.low), x2: row.high === null ? right : at(row.high), y1: y, y2: y });
    ink(bar, row.label, ["stroke"]);
  }
  for (const dot of row.dots.filter((x) => x !== null)) {
    ink(svg(root, "circle", { class: "dot", cx: at(dot), cy: y, r: 3 }), row.label, ["fill"]);
  }
  if (row.value !== null) ink(svg(root, "circle", { class: "mark", cx: at(row.value), cy: y, r: 5.5 }), row.label, ["fill"]);
}

/** P(row above column) for all pairs, coloured from vermilion (0) over the background (0.5) to blue (1). */
function matrix(parent, labels, pairs) {
  const made = put(put(parent, "div", "", "wide"), "table", "", "matrix");
  const head = put(put(made, "thead"), "tr");
  put(head, "th", "P(row > column)");
  labels.forEach((label) => put(head, "th", label));
  const body = put(made, "tbody");
  for (const row of labels) {
    const line = put(body, "tr");
    put(line, "th", row);
    for (const column of labels) {
      const cell = put(line, "td");
      const pair = pairs.find((p) => [p.first, p.second].includes(row) && [p.first, p.second].includes(column));
      if (row === column || !pair || pair.probability === null) continue;
      const probability = pair.first === row ? pair.probability : 1 - pair.probability;
      cell.textContent = probability.toFixed(2);
      const opacity = `${Math.round(Math.abs(probability - 0.5) * 110)}%`;
      cell.style.background = `color-mix(in oklab, ${probability < 0.5 ? "#d55e00" : "#0072b2"} ${opacity}, transparent)`;
      cell.title = `${pair.first} against ${pair.second}: ${pair.probability_text}`;
    }
  }
}

function pairTable(parent, pairs) {
  const overall = pairs.every((pair) => pair.paired === null);
  const header = ["pair", "difference of IQMs", "P(first higher)", "permutation p", ...(overall ? [] : ["at equal seeds"]), "verdict"];
  const made = table(parent, header, pairs.map((pair) => [
    `${pair.first} − ${pair.second}`, pair.difference, pair.probability_text, pair.p, ...(overall ? [] : [pair.paired]),
    pair.sure === "open" ? "no clear difference" : `${pair.ahead} ${pair.sure === "clear" ? "is better" : "scored higher, not settled"}`,
  ]), overall ? [] : [4]);
  made.querySelectorAll("tbody tr").forEach((line, i) => line.lastChild.classList.add(pairs[i].sure));
}

function pairsOf(parent, labels, pairs) {
  if (!pairs.length) return;
  put(parent, "h3", "Pairs of algorithms");
  if (labels.length < MANY) return pairTable(parent, pairs);
  matrix(parent, labels, pairs);
  const note = `${pairs.length} pairs are compared: by chance alone about one in twenty would look clearly different.`;
  put(parent, "p", note, "soft");
  const more = put(parent, "details");
  put(more, "summary", "Differences, intervals and pairs of seeds");
  pairTable(more, pairs);
}

function profile(parent, series, xLabel) {
  put(parent, "h3", "Performance profile");
  // Many overlapping bands are unreadable.
  const shown = series.length <= BANDS ? series : series.map((s) => ({ ...s, low: undefined, high: undefined }));
  lines(parent, shown, { xLabel, yLabel: "fraction of seeds above", yRange: [0, 1], height: 240 });
}

function verdict(found, i) {
  const box = put(main, "section", "", `verdict ${found.sure}${i ? "" : " first"}`);
  put(box, "span", SURE[found.sure], "badge");
  put(box, "h2", `${found.title}.`);
  put(box, "p", found.detail);
}

function warnings() {
  if (!data.warnings.length) return;
  const box = put(main, "details", "", "warnings");
  box.open = data.warnings.length <= 4;
  put(box, "summary", `${data.warnings.length} warning${data.warnings.length > 1 ? "s" : ""}`);
  const list = put(box, "ul");
  data.warnings.forEach((text) => put(list, "li", text));
}

function overall(found) {
  put(main, "h2", "Over all environments");
  found.scales.forEach((scale) => put(main, "p", scale, "soft"));
  const grid = put(main, "div", "", "two");
  for (const one of found.charts) {
    const half = put(grid, "div");
    put(half, "h3", one.title);
    dotChart(half, one.dots);
  }
  profile(main, found.profiles, "normalised score");
  pairsOf(main, found.lines.map((line) => line[0]), found.pairs);
}

function environment(found) {
  const wins = found.metric === "win rate";
  put(main, "h2", found.env);
  put(main, "p", `${found.metric} · ${found.version} · ${found.protocols.join("; ")}`, "soft");
  put(main, "h3", "Learning curves");
  const axes = { xLabel: "environment steps", yLabel: `${found.metric} (${found.statistic})` };
  lines(main, found.curves, { ...axes, yRange: wins ? [0, 1] : [null, null], height: 340 });
  put(main, "p", `${found.caption} Thin lines are single seeds.`, "soft");
  scores(found);
  pairsOf(main, found.curves.map((s) => s.label), found.pairs);
  const grid = put(main, "div", "", "two");
  profile(put(grid, "div"), found.profiles, found.metric);
  const half = put(grid, "div");
  put(half, "h3", "Speed");
  dotChart(half, found.speed.rows, { range: [0, Math.max(...found.speed.rows.map((row) => row.last))], xLabel: "environment steps" });
  put(half, "p", `${found.speed.definition}.`, "soft");
  if (found.training.length) training(found.training);
}

/** All scores on the same axis; the first is the compared one. */
function scores(found) {
  const grid = put(main, "div", "", "two");
  const all = found.scores.flatMap((score) => score.dots.flatMap((row) => [row.value, row.low, row.high, ...row.dots]));
  for (const score of found.scores) {
    const half = put(grid, "div");
    put(half, "h3", score.name[0].toUpperCase() + score.name.slice(1));
    const note = score.compared ? "The verdict and all pairs use this score." : "For reference; not used for the verdict.";
    put(half, "p", note, "soft");
    dotChart(half, score.dots, { range: ends(all, []), xLabel: found.metric });
    table(half, score.header, score.lines);
  }
}

function training(panels) {
  put(main, "h3", "Conflict and consensus during training");
  const grid = put(main, "div", "", "two");
  for (const panel of panels) {
    lines(put(grid, "div"), panel.series, { xLabel: "environment steps", yLabel: panel.title, yRange: [0, null], height: 200 });
  }
}

function provenance() {
  put(main, "h2", "Provenance");
  for (const found of data.envs.filter((env) => env.differences.lines.length)) {
    const box = put(main, "details");
    put(box, "summary", `Settings that differ between the runs on ${found.env} (${found.differences.lines.length})`);
    table(box, ["setting", ...found.differences.labels], found.differences.lines);
  }
  for (const run of data.runs) {
    const box = put(main, "details", "", "run");
    algorithm(put(box, "summary"), `${run.label}`);
    box.firstChild.append(` on ${run.env}, ${run.seeds.length} seed${run.seeds.length > 1 ? "s" : ""}`);
    put(box, "p", `${run.protocol}. Read from ${run.path}.`, "soft");
    put(box, "h3", "Command for this configuration");
    put(box, "pre", run.command || "none: this version of grasp has no such algorithm or preset");
    put(box, "h3", "Seeds");
    const rows = run.seeds.map((s) => [`${s.seed}`, s.env_steps.toLocaleString("en"), `${s.evaluations}`, s.sha256]);
    table(box, ["seed", "env steps", "evaluations", "SHA-256 of metrics.jsonl"], rows, [3])
      .querySelectorAll("td:last-child").forEach((cell) => cell.classList.add("hash"));
    const grid = put(box, "div", "", "two");
    for (const [name, value] of [["Configuration", run.config], ["Versions and hardware", run.versions]]) {
      const half = put(grid, "div");
      put(half, "h3", name);
      put(half, "pre", JSON.stringify(value, null, 1));
    }
  }
}

const TERMS = {
  "IQM": "the interquartile mean over seeds: the mean without the highest and the lowest quarter; with fewer than four seeds, the mean.",
  "95 % interval": "percentile bootstrap over seeds, 2,000 resamples. It is too narrow for few seeds: for the IQM of normal scores it covers about 90 % with five and 74 % with three. It is n/a for one seed and for seeds that all have the same score.",
  "absolute metric": "the best policy of a seed, by its evaluations, evaluated again on new episodes. If an early policy was lucky, it does not reflect the end of training.",
  "final score": "the mean of the last tenth of a seed's evaluations.",
  "P(first higher)": "the probability that a seed of the first scores above a seed of the second; ties count half. 0.5 means no difference.",
  "permutation p": "the fraction of relabellings of the seeds whose means are at least as far apart. It cannot be below 0.1 with three seeds per side, nor below 0.008 with five.",
  "at equal seeds": "the mean of the differences between runs with the same seed number, and its interval.",
  "verdict": "“is better” needs an interval of the difference that excludes zero and a permutation p of at most 0.05; “scored higher, not settled” has only the first, as would a fifth of equal algorithms with three seeds. “No clear difference” does not mean that the algorithms are equal.",
  "performance profile": "for every score, the fraction of seeds above it; a curve that is higher everywhere is better. Bands are pointwise 95 % intervals.",
  "speed": "env steps until the mean of three consecutive evaluations first reaches the threshold, by default three quarters of the best algorithm's score. A seed that never reaches it counts as infinite.",
};

function terms() {
  put(main, "h2", "How to read this");
  const list = put(main, "dl");
  for (const [name, meaning] of Object.entries(TERMS)) {
    put(list, "dt", name);
    put(list, "dd", meaning);
  }
}

const top = put(main, "header");
put(top, "h1", "GRASP comparison");
put(top, "p", `${data.summary} · grasp ${data.grasp}`);
data.verdicts.forEach(verdict);
warnings();
if (data.overall) overall(data.overall);
data.envs.forEach(environment);
provenance();
terms();

// Paper is narrower than most windows, and folded parts cannot be opened on it.
addEventListener("beforeprint", () => {
  document.body.classList.add("printing");
  document.querySelectorAll("details:not(.run)").forEach((box) => (box.open = true));
  drawn.forEach((again) => again());
});
addEventListener("afterprint", () => {
  document.body.classList.remove("printing");
  drawn.forEach((again) => again());
});
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawn.forEach((again) => again());
  width = innerWidth;
});
