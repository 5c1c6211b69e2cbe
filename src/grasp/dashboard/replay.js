/** The replay panel: one greedy episode of the policy at a point of a curve. */

import { byId, duration, fillSelect, NO_SERVER } from "/dom.js";

const RETRY = 700; // milliseconds between two requests for a film that is not ready
/** `film`: run, curves of its seeds, index of the seed, environment steps. `url`: of the film that is requested. */
const panel = { film: null, url: null, timer: 0 };

/** Open the panel at a point of a curve: the seed of a thin line, or the first seed. */
export function openReplay(run, point) {
  const seeds = run.metrics.return_mean?.seeds ?? run.metrics.win_rate.seeds;
  panel.film = { run, seeds, index: point.faint ?? 0, steps: point.x };
  const names = run.seeds.map((seed, i) => [String(i), `seed ${seed}`]);
  fillSelect(byId("replay-seed"), names, String(panel.film.index));
  byId("replay").hidden = false;
  move(0);
}

/** Move by so many evaluations from the one nearest to the current steps. */
function move(by) {
  const film = panel.film;
  const x = film.seeds[film.index][0];
  const distance = (i) => Math.abs(x[i] - film.steps);
  const closest = x.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
  film.steps = x[Math.min(Math.max(closest + by, 0), x.length - 1)];
  byId("replay-title").textContent =
    `${film.run.label} on ${film.run.env}, after ${film.steps.toLocaleString("en")} steps`;
  byId("film").hidden = true;
  byId("replay-notice").hidden = false;
  clearTimeout(panel.timer);
  const seed = film.run.seeds[film.index];
  request(`/replay?run=${film.run.id}&seed=${seed}&checkpoint=${film.steps}`, performance.now());
}

async function request(url, since) {
  panel.url = url;
  const notify = (text, isError = false) =>
    Object.assign(byId("replay-notice"), { textContent: text, className: isError ? "notice bad" : "notice" });
  notify("playing one greedy episode …");
  try {
    const response = await fetch(url, { cache: "no-store" });
    if (panel.url !== url) return;
    if (response.status === 202) {
      const { state } = await response.json();
      const task = state === "waiting" ? "waiting for another replay" : "playing one greedy episode";
      notify(`${task} … ${duration((performance.now() - since) / 1000)}`);
      panel.timer = setTimeout(() => panel.url === url && request(url, since), RETRY);
    } else if (response.ok) showFilm(url);
    else notify((await response.json()).error, true);
  } catch {
    notify(NO_SERVER, true);
  }
}

function showFilm(url) {
  byId("replay-notice").hidden = true;
  Object.assign(byId("film"), { src: url, hidden: false, alt: byId("replay-title").textContent });
}

function close() {
  panel.url = null;
  clearTimeout(panel.timer);
  byId("film").removeAttribute("src");
  byId("replay").hidden = true;
}

/** Attach the handlers, once. */
export function startReplay() {
  byId("replay-seed").onchange = (event) => ((panel.film.index = Number(event.target.value)), move(0));
  byId("earlier").onclick = () => move(-1);
  byId("later").onclick = () => move(1);
  byId("close").onclick = close;
}
