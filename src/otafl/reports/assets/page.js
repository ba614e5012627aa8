// The page: reads the embedded data, draws every chart, and answers the controls.

const { report, charts } = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const logs = new Set(Object.values(charts).filter((chart) => chart.log).map((chart) => chart.id));
const visible = () => report.schemes.filter((scheme) => scheme.finished && !hidden.has(scheme.id));
const kinds = { line: drawLines, bars: drawBars, heat: drawHeat };
let overEps = false;

function draw(figure) {
  const chart = charts[figure.dataset.chart];
  const options = { log: logs.has(chart.id), overEps, height: chart.wide ? 340 : 250 };
  kinds[chart.kind](figure.querySelector(".plot"), chart, visible(), options);
}

const drawAll = () => document.querySelectorAll("figure.chart").forEach(draw);

// --- legend: click toggles, double click shows one alone -------------------------------------------------------------

function paintLegend() {
  for (const button of document.querySelectorAll("#legend button")) button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.scheme))));
  for (const row of document.querySelectorAll("#comparison tr[data-scheme]")) row.classList.toggle("off", hidden.has(Number(row.dataset.scheme)));
}

function toggle(id) {
  if (!hidden.delete(id)) hidden.add(id);
  paintLegend();
  drawAll();
}

function only(id) {
  const others = report.schemes.map((scheme) => scheme.id).filter((other) => other !== id);
  const alone = others.every((other) => hidden.has(other));
  hidden.clear();
  if (!alone) others.forEach((other) => hidden.add(other));
  paintLegend();
  drawAll();
}

for (const scheme of report.schemes.filter((entry) => entry.finished)) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.scheme = scheme.id;
  button.title = "click: hide or show; double-click: only this";
  button.append(swatch(scheme.id), scheme.label);
  button.addEventListener("click", () => toggle(scheme.id));
  button.addEventListener("dblclick", () => only(scheme.id));
  document.getElementById("legend").append(button);
}
for (const key of document.querySelectorAll("[data-scheme] > .key, [data-scheme] > h3 > .key, [data-scheme] > th > .key")) {
  key.append(swatch(Number(key.closest("[data-scheme]").dataset.scheme)));
}
paintLegend();

// --- axes --------------------------------------------------------------------------------------------------------------

for (const figure of document.querySelectorAll("figure.chart")) {
  const button = figure.querySelector(".log");
  if (!button) continue;
  const id = figure.dataset.chart;
  button.setAttribute("aria-label", `Logarithmic axis: ${charts[id].title}`);
  button.setAttribute("aria-pressed", String(logs.has(id)));
  button.addEventListener("click", () => {
    if (!logs.delete(id)) logs.add(id);
    button.setAttribute("aria-pressed", String(logs.has(id)));
    draw(figure);
  });
}
for (const choice of document.querySelectorAll("input[name=axis]")) {
  choice.addEventListener("change", () => { overEps = document.querySelector("input[name=axis]:checked").value === "eps"; drawAll(); });
}

// --- differences to a reference --------------------------------------------------------------------------------------

function verdict(gap) {
  if (!gap) return "reference";
  const mean = number(gap.mean), half = number(gap.half_width);
  if (!Number.isFinite(mean)) return "–";
  const size = Math.max(Math.abs(mean), Number.isFinite(half) ? half : 0);
  const digits = size > 0 && size < 1e-3 ? Math.min(8, 1 + Math.ceil(-Math.log10(size))) : 3;
  const shown = `${mean < 0 ? "−" : "+"}${Math.abs(mean).toFixed(digits)}`;
  if (!Number.isFinite(half)) return `${shown}, one pair: no interval`;
  return `${shown} ± ${half.toFixed(digits)}${Math.abs(mean) <= half ? ", cannot be separated" : ""}`;
}

/** The interval as a small picture, zero in the middle. */
function interval(gap, reach) {
  const x = (value) => 36 + (32 * value) / reach, mean = number(gap.mean), half = number(gap.half_width) || 0;
  const colour = Math.abs(mean) <= half ? "var(--soft)" : "var(--accent)";
  return node("svg", { width: 72, height: 14, "aria-hidden": "true" },
    node("line", { x1: 36, x2: 36, y1: 0, y2: 14, stroke: "var(--line)" }),
    node("line", { x1: x(mean - half), x2: x(mean + half), y1: 7, y2: 7, stroke: colour, "stroke-width": 2 }),
    node("circle", { cx: x(mean), cy: 7, r: 3.2, fill: colour }));
}

function paintDifferences() {
  const metric = document.getElementById("metric").value, reference = Number(document.getElementById("reference").value);
  const gaps = report.differences[metric].map((row) => row[reference]);
  const reach = Math.max(...gaps.map((gap) => (gap && Number.isFinite(number(gap.mean)) ? Math.abs(gap.mean) + (number(gap.half_width) || 0) : 0))) || 1;
  for (const row of document.querySelectorAll("#comparison tr[data-scheme]")) {
    const gap = gaps[Number(row.dataset.scheme)], cell = row.querySelector(".difference");
    cell.replaceChildren(...(gap && Number.isFinite(number(gap.mean)) ? [interval(gap, reach)] : []), verdict(gap));
  }
}

if (document.getElementById("comparison")) {
  for (const id of ["metric", "reference"]) document.getElementById(id).addEventListener("change", paintDifferences);
  paintDifferences();
}

// --- folded parts: on a phone all but the results --------------------------------------------------------------------------

const folds = [...document.querySelectorAll("details.fold")];
for (const fold of folds) {
  if (innerWidth < 640) fold.open = false;
  fold.addEventListener("toggle", () => { if (fold.open) fold.querySelectorAll("figure.chart").forEach(draw); });
}
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", () => { const fold = document.querySelector(`${link.hash} > details.fold`); if (fold) fold.open = true; });
}

// --- light and dark, size ----------------------------------------------------------------------------------------------

const setTheme = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; drawAll(); };
prefersDark.addEventListener("change", (event) => setTheme(event.matches));
document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
drawAll();

// --- paper: light, everything unfolded ---------------------------------------------------------------------------------

let before = null;
addEventListener("beforeprint", () => {
  before = { dark: document.documentElement.dataset.theme === "dark", folded: [...document.querySelectorAll("details:not([open])")] };
  before.folded.forEach((details) => { details.open = true; });
  printing = true;
  setTheme(false);
});
addEventListener("afterprint", () => {
  before.folded.forEach((details) => { details.open = false; });
  printing = false;
  setTheme(before.dark);
});

let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
