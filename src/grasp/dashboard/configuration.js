/** The configuration of one run, as tables. */

import { byId, make, rebuild } from "/dom.js";

const PREFIX = "hyper.";

/** @param {object} data as in /api/config */
export function showConfiguration(data) {
  byId("config-name").textContent = data.name;
  rebuild(byId("tables"), data, () =>
    data.problem ? [make("p", { className: "notice", textContent: data.problem })] : tables(data),
  );
}

function tables({ config, versions }) {
  const isHyper = ([name]) => name.startsWith(PREFIX);
  const hyper = config.filter(isHyper).map(([name, value]) => [name.slice(PREFIX.length), value]);
  const parts = [
    ["run", config.filter((row) => !isHyper(row))],
    ["algorithm", hyper],
    ["versions", versions],
  ];
  return parts.filter(([, rows]) => rows.length).map(([title, rows]) => table(title, rows));
}

function table(title, rows) {
  const lines = rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { textContent: text }))));
  return make("table", {}, make("caption", { textContent: title }), make("tbody", {}, ...lines));
}
