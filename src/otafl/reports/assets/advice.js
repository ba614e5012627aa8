// The closed forms of an advice, and the page around them. No network; the state is in the address.
const given = JSON.parse(document.getElementById("data").textContent);
const constants = given.constants;

// log of erfc(x): a Chebyshev fit with relative error 1.2e-7 everywhere, kept in logarithms so that tails do not vanish.
function logErfc(x) {
  const z = Math.abs(x), t = 2 / (2 + z), ty = 4 * t - 2;
  const c = [-1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3,
    -9.46595344482036e-4, 3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5, -1.624290004647e-6,
    1.303655835580e-6, 1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9, 5.059343495e-9, -9.91364156e-10,
    -2.27365122e-10, 9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13,
    3.81e-16, 7.106e-15];
  let d = 0, dd = 0;
  for (let j = c.length - 1; j > 0; j--) { const keep = d; d = ty * d - dd + c[j]; dd = keep; }
  const log = Math.log(t) - z * z + 0.5 * (c[0] + ty * d) - dd;
  return x >= 0 ? log : Math.log(2 - Math.exp(log));
}
const logPhi = x => logErfc(-x / Math.SQRT2) - Math.LN2;
const phi = x => Math.exp(logPhi(x));

function bisect(f, low, high) {
  for (let n = 0; n < 200 && high - low > 1e-13 * Math.abs(high); n++) {
    const middle = (low + high) / 2;
    if (f(middle) > 0) high = middle; else low = middle;
  }
  return (low + high) / 2;
}

function mu(eps, delta, accountant) {
  if (accountant === "zcdp") {
    const log = Math.log(1 / delta);
    return Math.SQRT2 * (Math.sqrt(log + eps) - Math.sqrt(log));
  }
  const excess = m => Math.exp(logPhi(m / 2 - eps / m)) - Math.exp(eps + logPhi(-m / 2 - eps / m)) - delta;
  return bisect(excess, 1e-6, 2 * Math.sqrt(2 * eps) + 20);
}

const quality = (snr, agreement, params) =>
  agreement * snr * (constants.reference_params / params) ** constants.size_exponent;
function lift(q, rounds) {
  if (!(q > 0) || rounds < 1) return 0;
  return 1 / (1 + ((constants.half_at / q) ** 2 + constants.rounds_cost / rounds) ** constants.steepness);
}
function band(q) {
  const rows = constants.band, next = rows.findIndex(([middle]) => q < middle);
  if (next <= 0) return rows.at(next === 0 ? 0 : -1).slice(1);
  const [[before, ...from], [after, ...to]] = rows.slice(next - 1, next + 1);
  const share = Math.log(q / before) / Math.log(after / before);
  return from.map((end, n) => end + share * (to[n] - end));
}
const verdict = q => q >= constants.useful ? "useful" : q >= constants.marginal ? "marginal" : "not useful";

function forms(base, at) {
  const now = mu(at.eps, base.delta, base.accountant), before = mu(base.eps, base.delta, base.accountant);
  const snrMax = at.devices * now * base.snr_unit, snr = base.efficiency * snrMax;
  const q = quality(snr, base.agreement, at.num_params);
  const louder = (now / before) ** 2 * 10 ** (at.noise_db / 10);
  const margin = base.margin_db === null ? null
    : base.margin_db - 10 * Math.log10(louder * base.rounds / at.rounds);
  const outside = Object.entries(constants.domain).filter(([name, [low, high]]) => !(low <= at[name] && at[name] <= high));
  return {mu: now, snr_max: snrMax, snr, quality: q, lift: lift(q, at.rounds),
    tpr: phi(now + constants.false_positive_quantile), verdict: verdict(q),
    energy: base.energy === null ? null : base.energy * louder, margin_db: margin, outside: outside.map(([name]) => name)};
}
window.otaflForms = {forms, mu, lift, band, phi};

// --- sliders ---
const SLIDERS = [
  {key: "eps", label: "ε, privacy of the whole training", low: 0.1, high: 200},
  {key: "devices", label: "devices", low: 2, high: 20000, whole: true},
  {key: "num_params", label: "D, parameters of the model", low: 20, high: 1e6, whole: true},
  {key: "rounds", label: "T, rounds", low: 5, high: 2000, whole: true},
  {key: "noise_db", label: "receiver noise, change in dB", low: -20, high: 20, linear: true},
];
const STEPS = 400;
const places = slider => slider.linear
  ? {to: v => (v - slider.low) / (slider.high - slider.low) * STEPS, from: p => slider.low + p / STEPS * (slider.high - slider.low)}
  : {to: v => Math.log(v / slider.low) / Math.log(slider.high / slider.low) * STEPS,
     from: p => slider.low * (slider.high / slider.low) ** (p / STEPS)};
const short = x => x === null ? "–" : x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2)
  : String(+x.toPrecision(3));
// Of what an attacker finds at most: never rounded below.
const atMost = x => { const unit = 10 ** (Math.floor(Math.log10(x)) - 2); return short(Math.ceil(x / unit) * unit); };

const start = {scheme: given.bases.length ? 0 : -1};
if (given.bases.length) {
  const b = given.bases[0].base;
  Object.assign(start, {eps: b.eps, devices: b.devices, num_params: b.num_params, rounds: b.rounds, noise_db: 0});
}
let state = {...start};

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const found = {...start};
  for (const slider of SLIDERS) {
    const value = said.has(slider.key) ? Number(said.get(slider.key)) : NaN;
    if (value >= slider.low && value <= slider.high) found[slider.key] = slider.whole ? Math.round(value) : value;
  }
  const scheme = given.bases.findIndex(entry => entry.name === said.get("scheme"));
  if (scheme >= 0) found.scheme = scheme;
  return found;
}

function writeAddress() {
  const changed = new URLSearchParams();
  if (state.scheme !== start.scheme) changed.set("scheme", given.bases[state.scheme].name);
  for (const {key} of SLIDERS) if (state[key] !== start[key]) changed.set(key, +state[key].toPrecision(6));
  history.replaceState(null, "", changed.toString() ? "#" + changed : location.pathname + location.search);
}

function build() {
  const form = document.getElementById("sliders");
  const choice = document.createElement("label");
  choice.textContent = "plan that the forms start from";
  const select = document.createElement("select");
  select.id = "scheme";
  given.bases.forEach((entry, n) => select.add(new Option(entry.name, n)));
  select.addEventListener("change", () => { state.scheme = Number(select.value); update(); });
  choice.append(select);
  form.append(choice);
  for (const slider of SLIDERS) {
    const label = document.createElement("label"), output = document.createElement("output"), input = document.createElement("input");
    label.append(slider.label, output, input);
    Object.assign(input, {type: "range", min: 0, max: STEPS, step: 1, id: "slider-" + slider.key});
    input.setAttribute("aria-label", slider.label);
    input.addEventListener("input", () => {
      const value = places(slider).from(Number(input.value));
      state[slider.key] = slider.whole ? Math.round(value) : +value.toPrecision(3);
      update();
    });
    form.append(label);
  }
  const reset = document.createElement("button");
  Object.assign(reset, {type: "button", id: "reset", textContent: "Back to the computed plan"});
  reset.addEventListener("click", () => { state = {...start}; update(); });
  form.append(reset);
}

function update(save = true) {
  if (state.scheme < 0) return;
  const base = given.bases[state.scheme].base, got = forms(base, state);
  document.getElementById("scheme").value = state.scheme;
  for (const slider of SLIDERS) {
    const input = document.getElementById("slider-" + slider.key);
    input.value = places(slider).to(state[slider.key]);
    input.previousElementSibling.textContent = short(state[slider.key]);
  }
  const [low, high] = band(got.quality), answer = document.getElementById("answer");
  const rows = [
    ["Q", `${short(got.quality)}, ${got.verdict}`, "big"],
    ["accuracy", `${Math.round(100 * got.lift)} % of what is attainable above chance (${Math.round(100 * low)} to ${Math.round(100 * high)} % in like runs)`],
    ["S, of at most", `${short(got.snr)} of ${short(got.snr_max)}`],
    ["attack success", `at most ${atMost(100 * got.tpr)} % found at 1 % false alarms (μ = ${atMost(got.mu)})`],
    ["energy per device", got.energy === null ? "follows the devices' own noise: see the plans" : `${short(got.energy)} J`],
    ["power", got.margin_db === null ? "–" : got.margin_db < 0 ? `${short(-got.margin_db)} dB too little: somebody falls silent` : `${short(got.margin_db)} dB left`],
  ];
  if (got.outside.length) rows.push(["outside", `Q was not calibrated there: ${got.outside.join(", ").replace("num_params", "D")}`]);
  answer.replaceChildren(...rows.flatMap(([name, text, kind]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = text; if (kind) dd.className = kind;
    return [dt, dd];
  }));
  answer.classList.toggle("outside", got.outside.length > 0);
  answer.dataset.quality = got.quality;
  drawFrontier(base, got);
  if (save) writeAddress();
}

// --- figures ---
const SVG = "http://www.w3.org/2000/svg";
function draw(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function canvas(id, width, height, label) {
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
  document.getElementById(id).replaceChildren(svg);
  return svg;
}

// Figures are drawn as wide as they stand, so that their words keep their size.
const widthOf = id => Math.max(300, document.getElementById(id).clientWidth);

function drawFrontier(base, got) {
  const w = widthOf("frontier"), h = 300, left = 44, bottom = 34, top = 10, right = 90, low = 0.25, high = 64;
  const svg = canvas("frontier", w, h, "share of attainable accuracy over epsilon");
  const x = eps => left + Math.log(eps / low) / Math.log(high / low) * (w - left - right), y = v => top + (1 - v) * (h - top - bottom);
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(draw("line", {x1: left, x2: w - right, y1: y(v), y2: y(v), stroke: "currentColor", "stroke-opacity": .15}));
    svg.append(draw("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, v * 100 + " %"));
  }
  for (const e of w < 480 ? [0.25, 1, 4, 16, 64] : [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64]) svg.append(draw("text", {x: x(e), y: h - bottom + 18, "text-anchor": "middle"}, e));
  svg.append(draw("text", {x: (left + w - right) / 2, y: h - 2, "text-anchor": "middle"}, "ε"));
  [[0.25, "#4477aa"], [1, "#228833"], [4, "#aa3377"]].forEach(([factor, colour]) => {
    const devices = Math.max(1, Math.round(state.devices * factor)), points = [];
    for (let n = 0; n <= 48; n++) {
      const eps = low * (high / low) ** (n / 48);
      points.push([x(eps), y(forms(base, {...state, eps, devices}).lift)]);
    }
    const inside = constants.domain.devices[0] <= devices && devices <= constants.domain.devices[1];
    const group = draw("g", {class: inside ? "inside" : "outside"});
    group.append(draw("polyline", {points: points.map(p => p.map(v => v.toFixed(1)).join()).join(" "), fill: "none", stroke: colour, "stroke-width": 2}));
    group.append(draw("text", {x: w - right + 6, y: points[points.length - 1][1] + 4 + (factor === 4 ? -6 : factor < 1 ? 10 : 2)}, devices + " devices"));
    svg.append(group);
  });
  const eps = Math.min(Math.max(state.eps, low), high);
  svg.append(draw("circle", {cx: x(eps), cy: y(got.lift), r: 5, fill: "#228833", stroke: "currentColor"}));
}

function drawMap() {
  const rows = given.devices;
  if (!rows.length) return;
  const size = 340, svg = canvas("map", size, size, `${rows.length} devices around the receiver`);
  const loss = rows.map(row => -row.gain_db), least = Math.min(...loss), span = Math.max(...loss) - least || 1;
  svg.append(draw("circle", {cx: size / 2, cy: size / 2, r: 4, fill: "currentColor"}));
  rows.forEach((row, n) => {
    const r = 20 + (loss[n] - least) / span * (size / 2 - 32), angle = n * 2.399963;
    const cx = size / 2 + r * Math.cos(angle), cy = size / 2 + r * Math.sin(angle), unheard = row.share < 0.5 * row.weight;
    const mark = unheard ? draw("path", {d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8`, stroke: "#cc3311", "stroke-width": 2})
      : draw("circle", {cx, cy, r: 4.5, fill: row.heard > 0.9995 ? "#4477aa" : "none", stroke: "#4477aa", "stroke-width": 1.5});
    mark.setAttribute("data-device", row.name);
    const where = row.distance_m === null ? `${short(row.gain_db)} dB` : `${short(row.distance_m)} m`;
    mark.append(draw("title", {}, `${row.name}: ${where}, heard in ${Math.round(1000 * row.heard) / 10} % of rounds, weight ${short(row.share)} (wanted ${short(row.weight)})`));
    svg.append(mark);
  });
}

function drawEnergy() {
  const rows = given.devices.filter(row => row.energy !== null && row.energy > 0);
  if (!rows.length) { document.getElementById("energy").textContent = "This plan does not use the radio's energy."; return; }
  const w = widthOf("energy"), h = 300, left = 60, bottom = 24, svg = canvas("energy", w, h, "energy of each device");
  const values = rows.flatMap(row => [row.energy, row.limit ?? row.energy]), low = Math.min(...values) / 2, high = Math.max(...values) * 2;
  const y = v => 10 + (1 - Math.log(v / low) / Math.log(high / low)) * (h - bottom - 10), x = n => left + (n + .5) / rows.length * (w - left - 10);
  for (let p = Math.ceil(Math.log10(low)); p <= Math.log10(high); p++) {
    svg.append(draw("line", {x1: left, x2: w - 10, y1: y(10 ** p), y2: y(10 ** p), stroke: "currentColor", "stroke-opacity": .15}));
    svg.append(draw("text", {x: left - 6, y: y(10 ** p) + 4, "text-anchor": "end"}, `1e${p} J`));
  }
  rows.forEach((row, n) => {
    svg.append(draw("circle", {cx: x(n), cy: y(row.energy), r: 3, fill: "#4477aa"}));
    if (row.limit) svg.append(draw("line", {x1: x(n) - 4, x2: x(n) + 4, y1: y(row.limit), y2: y(row.limit), stroke: "#cc3311"}));
  });
  svg.append(draw("text", {x: (left + w) / 2, y: h - 6, "text-anchor": "middle"}, "devices, as in the file"));
}

document.getElementById("copy").addEventListener("click", async () => {
  const text = document.getElementById("toml").textContent, said = document.getElementById("copied");
  try { await navigator.clipboard.writeText(text); said.textContent = "copied"; }
  catch { getSelection().selectAllChildren(document.getElementById("toml")); said.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl+C"; }
});
if (given.bases.length) {
  build();
  state = readAddress();
  update(false);
  addEventListener("hashchange", () => { state = readAddress(); update(false); });
}
drawMap();
drawEnergy();
addEventListener("resize", () => { if (given.bases.length) update(false); drawEnergy(); });
