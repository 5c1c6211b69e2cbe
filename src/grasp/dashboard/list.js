/** The rows of the list of runs. */

import { short } from "/charts.js";
import { duration, make } from "/dom.js";

const rows = new Map(); // key -> the row that was made last, and from what

/** The element made from these facts, made anew only if they have changed. */
export function remember(key, facts, build) {
  const text = JSON.stringify(facts);
  const known = rows.get(key);
  if (known?.text === text) return known.element;
  const focus = known && known.element.contains(document.activeElement) ? document.activeElement.tagName : null;
  const element = build();
  if (focus) requestAnimationFrame(() => element.querySelector(focus)?.focus());
  rows.set(key, { text, element });
  return element;
}

/** The heading of an environment: its box chooses all of its runs, or none. */
export function groupRow(env, members, isChosen, choose) {
  const box = make("input", { type: "checkbox", title: "show all of them, or none" });
  box.checked = members.every((run) => isChosen(run.id));
  box.indeterminate = !box.checked && members.some((run) => isChosen(run.id));
  box.onchange = () =>
    choose(
      members.map((run) => run.id),
      box.checked,
    );
  return make("label", { className: "env" }, box, make("span", { textContent: env }));
}

/** One run: its box, its name and score, its progress, and how it is doing. */
export function runRow({ run, isChosen, colour, isHere }, choose, focus) {
  const box = make("input", { type: "checkbox", checked: isChosen });
  box.setAttribute("aria-label", `show ${run.label} on ${run.env}`);
  box.onchange = () => choose([run.id], box.checked);
  const swatch = make("span", { className: "swatch" });
  if (isChosen && colour) swatch.style.background = colour === "#000000" ? "var(--ink)" : colour;
  const score =
    run.win_rate !== null
      ? `${Math.round(100 * run.win_rate)} %`
      : run.return_mean !== null
        ? short(run.return_mean)
        : "";
  const name = make(
    "button",
    { type: "button", className: "name", title: `${run.name}: show its conflict and configuration` },
    swatch,
    make("b", { textContent: run.label }),
    make("span", {
      className: "value",
      textContent: score,
      title: run.state === "finished" ? "its best policy" : "its newest evaluation",
    }),
  );
  name.onclick = () => focus(run.id);
  const bar = make("i");
  bar.style.width = `${run.planned ? Math.min(100, (100 * run.done) / run.planned) : 0}%`;
  return make(
    "div",
    { className: `row ${run.problem ? "unreadable" : run.state}${isHere ? " here" : ""}` },
    box,
    name,
    make("div", { className: "track" }, bar),
    make("span"),
    facts(run),
  );
}

function facts(run) {
  const list = make(
    "div",
    { className: "facts" },
    make("span", { className: "state", textContent: run.problem ? "unreadable" : run.state }),
  );
  const tell = (text, className = "") => list.append(make("span", { className, textContent: text }));
  if (run.problem) return (tell(run.problem), list);
  const begun = run.planned_seeds > run.seeds.length ? `${run.seeds.length}/` : "";
  tell(`${begun}${run.planned_seeds} seed${run.planned_seeds === 1 ? "" : "s"}`);
  if (run.skipped) tell(`${run.skipped} bad line${run.skipped === 1 ? "" : "s"}`);
  if (run.rate) tell(`${short(run.rate, 3)}/s`);
  const percent = run.planned ? Math.floor((100 * run.done) / run.planned) : 0;
  tell(
    run.eta !== null
      ? `${percent} % · ${duration(run.eta)} left`
      : run.state === "finished"
        ? short(run.done, 3)
        : `${percent} %`,
    "left",
  );
  return list;
}
