/** Small helpers of the page. Whatever comes from a run's files enters the document as text, never as markup. */

/** An element with properties and children; strings become text. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A "?" that says one sentence to whoever points at it or reaches it with the keyboard. */
export function hint(sentence) {
  const mark = make("span", { className: "hint", tabIndex: 0, textContent: "?" });
  mark.dataset.tip = sentence;
  mark.setAttribute("role", "note");
  mark.setAttribute("aria-label", sentence);
  return mark;
}

const remembered = new Map(); // url -> the last answer to it
const MOST_REMEMBERED = 30;

/**
 * Ask the server, telling it what we have. @param {string} url
 * @returns {Promise<{data: object, isNew: boolean}>} throws an Error with the server's sentence
 */
export async function ask(url) {
  const before = remembered.get(url);
  const response = await fetch(url, { cache: "no-store", headers: before ? { "If-None-Match": before.tag } : {} });
  if (response.status === 304) return { data: before.data, isNew: false };
  const data = await response.json();
  if (!response.ok) throw Object.assign(new Error(data.error), { said: true });
  remembered.delete(url);
  remembered.set(url, { tag: response.headers.get("ETag"), data });
  if (remembered.size > MOST_REMEMBERED) remembered.delete(remembered.keys().next().value);
  return { data, isNew: true };
}

/** 75 -> 1m 15s, 7300 -> 2h 2m. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h ${minutes % 60}m` : `${Math.round(hours / 24)}d`;
}

/** Fill a select with [value, text] pairs and keep what was chosen, if it is still there. */
export function fill(select, pairs, chosen) {
  const made = JSON.stringify(pairs);
  if (select.dataset.made !== made)
    select.replaceChildren(...pairs.map(([value, text]) => make("option", { value, textContent: text })));
  select.dataset.made = made;
  select.value = chosen;
}
