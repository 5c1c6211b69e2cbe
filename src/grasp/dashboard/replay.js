/** The replay panel: one greedy episode of the checkpoint behind a point of a curve. */

import { byId, duration, fill } from "/dom.js";

const AGAIN = 700; // milliseconds between two questions whether the film is ready
const panel = { film: null, url: null, timer: 0 };

/** The film of the checkpoint behind a point of a curve: of the seed that was pointed at, or of the first. */
export function openReplay(run, point) {
  const seeds = run.metrics.return_mean?.seeds ?? run.metrics.win_rate.seeds;
  panel.film = { run, seeds, place: point.faint ?? 0, steps: point.x };
  fill(
    byId("replay-seed"),
    run.seeds.map((seed, i) => [String(i), `seed ${seed}`]),
    String(panel.film.place),
  );
  byId("replay").hidden = false;
  moveFilm(0);
}

/** Go to the checkpoint `by` places from the one nearest to where we are. */
function moveFilm(by) {
  const film = panel.film;
  const x = film.seeds[film.place][0];
  const near = x.reduce(
    (best, step, i) => (Math.abs(step - film.steps) < Math.abs(x[best] - film.steps) ? i : best),
    0,
  );
  film.steps = x[Math.min(Math.max(near + by, 0), x.length - 1)];
  byId("replay-title").textContent =
    `${film.run.label} on ${film.run.env}, after ${film.steps.toLocaleString("en")} steps`;
  byId("film").hidden = true;
  byId("replay-notice").hidden = false;
  clearTimeout(panel.timer);
  fetchFilm(
    `/replay?run=${film.run.id}&seed=${film.run.seeds[film.place]}&checkpoint=${film.steps}`,
    performance.now(),
  );
}

async function fetchFilm(url, since) {
  panel.url = url;
  const say = (text, isBad = false) =>
    Object.assign(byId("replay-notice"), { textContent: text, className: isBad ? "notice bad" : "notice" });
  say("playing one greedy episode …");
  try {
    const response = await fetch(url, { cache: "no-store" });
    if (panel.url !== url) return;
    if (response.status === 202) {
      const { state } = await response.json();
      const doing = state === "waiting" ? "waiting for another replay" : "playing one greedy episode";
      say(`${doing} … ${duration((performance.now() - since) / 1000)}`);
      panel.timer = setTimeout(() => panel.url === url && fetchFilm(url, since), AGAIN);
    } else if (response.ok) showFilm(url);
    else say((await response.json()).error, true);
  } catch {
    say("no answer from the server; is grasp watch still running?", true);
  }
}

function showFilm(url) {
  byId("replay-notice").hidden = true;
  Object.assign(byId("film"), { src: url, hidden: false, alt: byId("replay-title").textContent });
}

function closeReplay() {
  panel.url = null;
  clearTimeout(panel.timer);
  byId("film").removeAttribute("src");
  byId("replay").hidden = true;
}

/** Wire the controls, once. */
export function startReplay() {
  byId("replay-seed").onchange = (event) => ((panel.film.place = Number(event.target.value)), moveFilm(0));
  byId("earlier").onclick = () => moveFilm(-1);
  byId("later").onclick = () => moveFilm(1);
  byId("close").onclick = closeReplay;
}
