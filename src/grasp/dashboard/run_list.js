/** The list of runs, by environment. */

import { short } from "/chart.js";
import { byId, count, duration, make } from "/dom.js";

const rows = new Map(); // key -> {text: what the row was built from, element}

/**
 * Show the rows that match the filter.
 * @param {object[]} runs as in /api/runs
 * @param {{isShown: (id: string) => boolean, colourOf: (id: string) => string|undefined, selected: string|null}} state
 * @param {{onShow: (ids: string[], isOn: boolean) => void, onSelect: (id: string) => void}} handlers
 */
export function showRunList(runs, { isShown, colourOf, selected }, { onShow, onSelect }) {
  const filter = byId("filter").value.trim().toLowerCase();
  const matches = (run) => !filter || `${run.label} ${run.env} ${run.name} ${run.state}`.toLowerCase().includes(filter);
  const groups = Map.groupBy(runs.filter(matches), (run) => run.env);
  const wanted = [];
  for (const env of [...groups.keys()].sort()) {
    const members = groups.get(env);
    const ticked = members.map((run) => [run.id, isShown(run.id)]);
    wanted.push(reuse(`env ${env}`, ticked, () => environmentRow(env, members, isShown, onShow)));
    for (const run of members) {
      const data = { run, isShown: isShown(run.id), colour: colourOf(run.id), isSelected: run.id === selected };
      wanted.push(reuse(run.id, data, () => runRow(data, onShow, onSelect)));
    }
  }
  const holder = byId("runs");
  if (wanted.length !== holder.children.length || wanted.some((row, i) => row !== holder.children[i]))
    holder.replaceChildren(...wanted);
}

/** The row built from this data, rebuilt only if the data has changed, with the keyboard focus kept. */
function reuse(key, data, build) {
  const text = JSON.stringify(data);
  const known = rows.get(key);
  if (known?.text === text) return known.element;
  const focus = known && known.element.contains(document.activeElement) ? document.activeElement.tagName : null;
  const element = build();
  if (focus) requestAnimationFrame(() => element.querySelector(focus)?.focus());
  rows.set(key, { text, element });
  return element;
}

/** The heading of an environment: its checkbox shows all of its runs, or none. */
function environmentRow(env, members, isShown, onShow) {
  const box = make("input", { type: "checkbox", title: "show all runs of this environment, or none" });
  box.checked = members.every((run) => isShown(run.id));
  box.indeterminate = !box.checked && members.some((run) => isShown(run.id));
  box.onchange = () =>
    onShow(
      members.map((run) => run.id),
      box.checked,
    );
  return make("label", { className: "env" }, box, make("span", { textContent: env }));
}

/** One run: checkbox, name, score, progress bar and facts. */
function runRow({ run, isShown, colour, isSelected }, onShow, onSelect) {
  const box = make("input", { type: "checkbox", checked: isShown });
  box.setAttribute("aria-label", `show ${run.label} on ${run.env}`);
  box.onchange = () => onShow([run.id], box.checked);
  const swatch = make("span", { className: "swatch" });
  if (isShown && colour) swatch.style.background = colour === "#000000" ? "var(--ink)" : colour;
  const name = make(
    "button",
    { type: "button", className: "name", title: `${run.name}: show its conflict and configuration` },
    swatch,
    make("b", { textContent: run.label }),
    make("span", {
      className: "value",
      textContent: score(run),
      title: run.state === "finished" ? "score of the best policy" : "latest evaluation",
    }),
  );
  name.onclick = () => onSelect(run.id);
  const bar = make("i");
  bar.style.width = `${run.planned ? Math.min(100, (100 * run.done) / run.planned) : 0}%`;
  return make(
    "div",
    { className: `row ${run.problem ? "unreadable" : run.state}${isSelected ? " here" : ""}` },
    box,
    name,
    make("div", { className: "track" }, bar),
    make("span"),
    facts(run),
  );
}

function score(run) {
  if (run.win_rate !== null) return `${Math.round(100 * run.win_rate)} %`;
  return run.return_mean !== null ? short(run.return_mean) : "";
}

function facts(run) {
  const list = make("div", { className: "facts" });
  const add = (text, className = "") => list.append(make("span", { className, textContent: text }));
  add(run.problem ? "unreadable" : run.state, "state");
  if (run.problem) return (add(run.problem), list);
  const started = run.planned_seeds > run.seeds.length ? `${run.seeds.length}/` : "";
  add(`${started}${count(run.planned_seeds, "seed")}`);
  if (run.skipped) add(count(run.skipped, "bad line"));
  if (run.rate) add(`${short(run.rate, 3)}/s`);
  add(progress(run), "left");
  return list;
}

function progress(run) {
  const percent = run.planned ? Math.floor((100 * run.done) / run.planned) : 0;
  if (run.eta !== null) return `${percent} % · ${duration(run.eta)} left`;
  return run.state === "finished" ? short(run.done, 3) : `${percent} %`;
}
