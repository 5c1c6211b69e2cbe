/** Helpers of the page. Text from a run's files enters the document as text, never as markup. */

export const NO_SERVER = "no response from the server; is grasp watch still running?";

/** An element with properties and children; strings become text. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A "?" that shows one sentence on hover and on keyboard focus. */
export function hint(sentence) {
  const mark = make("span", { className: "hint", tabIndex: 0, textContent: "?" });
  mark.dataset.tip = sentence;
  mark.setAttribute("role", "note");
  mark.setAttribute("aria-label", sentence);
  return mark;
}

const cache = new Map(); // url -> the last response
const MOST_CACHED = 30;

/** An error whose message is the server's own sentence. */
export class ServerError extends Error {}

/**
 * Fetch JSON, revalidating what is cached. @param {string} url
 * @returns {Promise<{data: object, isNew: boolean}>} throws a ServerError with the server's sentence
 */
export async function fetchJson(url) {
  const cached = cache.get(url);
  const response = await fetch(url, { cache: "no-store", headers: cached ? { "If-None-Match": cached.tag } : {} });
  if (response.status === 304) return { data: cached.data, isNew: false };
  const data = await response.json();
  if (!response.ok) throw new ServerError(data.error);
  cache.delete(url);
  cache.set(url, { tag: response.headers.get("ETag"), data });
  if (cache.size > MOST_CACHED) cache.delete(cache.keys().next().value);
  return { data, isNew: true };
}

/** 75 -> 75s, 900 -> 15m, 7300 -> 2h 2m. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h ${minutes % 60}m` : `${Math.round(hours / 24)}d`;
}

/** 1, "seed" -> 1 seed; 2, "seed" -> 2 seeds. */
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** Replace an element's children only if `data`, from which they are built, has changed. */
export function rebuild(element, data, build) {
  const made = JSON.stringify(data);
  if (element.dataset.made !== made) element.replaceChildren(...build());
  element.dataset.made = made;
}

/** Fill a select with [value, text] pairs and select one. */
export function fillSelect(select, pairs, selected) {
  rebuild(select, pairs, () => pairs.map(([value, text]) => make("option", { value, textContent: text })));
  select.value = selected;
}
