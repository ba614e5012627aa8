// Line charts: mean over seeds with a band of one standard deviation, single seeds faintly behind.

const MARGIN = { left: 58, right: 14, top: 10, bottom: 40 };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 4", "9 2 2 2 2 2"];
const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "plus"];
const PAD = 0.05; // of the vertical range, above and below
const MOST_SEEDS = 30; // single seeds in one chart; with more only means and bands are drawn

let printing = false;
/** On paper all figures have the same type size, whatever window they were drawn in. */
const paperWidth = (place) => printing && (place.closest(".figures") ? 360 : 740);

const style = (id) => ({ colour: `var(--c${id % 8})`, dash: DASHES[(id + Math.floor(id / 8)) % 8], shape: SHAPES[id % 6] });

function node(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function marker(shape, x, y, size, colour) {
  const s = size;
  const paths = {
    square: `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    triangle: `M${x},${y - 1.2 * s}l${1.2 * s},${2.1 * s}h${-2.4 * s}z`,
    diamond: `M${x},${y - 1.35 * s}l${1.35 * s},${1.35 * s}l${-1.35 * s},${1.35 * s}l${-1.35 * s},${-1.35 * s}z`,
    cross: `M${x - s},${y - s}l${2 * s},${2 * s}M${x + s},${y - s}l${-2 * s},${2 * s}`,
    plus: `M${x - 1.2 * s},${y}h${2.4 * s}M${x},${y - 1.2 * s}v${2.4 * s}`,
  };
  if (shape === "circle") return node("circle", { cx: x, cy: y, r: s, fill: colour });
  const open = shape === "cross" || shape === "plus";
  return node("path", { d: paths[shape], fill: open ? "none" : colour, stroke: colour, "stroke-width": open ? 1.8 : 0 });
}

/** The sample of a scheme's line in legends and tables. */
function swatch(id) {
  const { colour, dash, shape } = style(id);
  const line = node("line", { x1: 0, y1: 7, x2: 30, y2: 7, stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dash });
  return node("svg", { width: 30, height: 14, "aria-hidden": "true" }, line, marker(shape, 15, 7, 3.4, colour));
}

/** One standard deviation about the mean, within the range of the seeds: no band passes a cap that no seed has passed. */
function band(y) {
  return { bottom: Math.max(y.mean - y.sd, y.low), top: Math.min(y.mean + y.sd, y.high) };
}

/**
 * Points of one scheme for one chart: mean, spread and single seeds at each kept round, over rounds or over eps.
 * Evaluations are averaged only where all seeds have one: seeds that stop early are evaluated at rounds of their own.
 */
function series(scheme, chart, overEps) {
  const table = scheme[chart.table];
  const matrix = table && table.columns[chart.column];
  if (!matrix) return null;
  const eps = overEps ? table.columns.eps : null, evaluated = chart.table === "evaluations";
  const means = carried(table, matrix), spent = eps && carried(table, eps);
  const points = table.round.map((round, index) => {
    const y = column(means, index), stopped = table.end.filter((end) => end < round).length;
    return { round, x: spent ? column(spent, index).mean : round, stopped, ends: table.end.includes(round), ...y, ...band(y) };
  }).filter((point) => !evaluated || point.count === matrix.length);
  const seeds = matrix.map((row, s) =>
    row.map((value, index) => ({ x: eps ? number(eps[s][index]) : table.round[index], y: number(value) })));
  return { scheme, points, seeds };
}

/** A seed that has stopped keeps its model, its state and what it has spent: its last values hold from then on. */
function carried(table, matrix) {
  return matrix.map((row, s) => {
    const last = table.round.indexOf(table.end[s]);
    return row.map((value, index) => (index > last ? row[last] : value));
  });
}

/** Whether energy means anything: a perfect uplink has none. */
const onAir = (scheme) => (scheme.summary || {}).uplink === "analog";

const path = (points) => {
  let text = "", pen = "M";
  for (const [x, y] of points) {
    if (Number.isNaN(x + y)) pen = "M";
    else { text += `${pen}${x.toFixed(2)},${y.toFixed(2)}`; pen = "L"; }
  }
  return text;
};

const COUNTED = ["round", "device"];  // no tick stands between two of them

/** Axes, grid and labels; returns the svg and its inner box. */
function canvas(place, height, xs, ys, labels) {
  const width = paperWidth(place) || Math.max(260, place.clientWidth);
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0 });
  const box = { width, height, left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  const x = xs(box.left, box.right), y = ys(box.bottom, box.top);
  if (!x || !y) return null;
  for (const tick of y.ticks(5)) {
    svg.append(node("line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }));
    svg.append(node("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, show(tick)));
  }
  const counted = COUNTED.includes(labels.x);
  for (const tick of x.ticks(Math.max(3, Math.round(width / 110))).filter((at) => !counted || Number.isInteger(at))) {
    svg.append(node("line", { class: "axis", x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 4 }));
    svg.append(node("text", { x: x(tick), y: box.bottom + 17, "text-anchor": "middle" }, show(tick)));
  }
  svg.append(node("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  svg.append(node("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, labels.x));
  const middle = (box.top + box.bottom) / 2;
  svg.append(node("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, labels.y));
  return { svg, box, x, y };
}

function drawLines(place, chart, schemes, options) {
  const overEps = options.overEps && chart.over_eps;
  const lines = schemes.filter((scheme) => !chart.on_air || onAir(scheme)).map((scheme) => series(scheme, chart, overEps)).filter(Boolean);
  const finite = lines.flatMap((line) => line.points.filter((p) => Number.isFinite(p.mean) && Number.isFinite(p.x)));
  const flats = overEps ? lines.filter((line) => !line.points.some((p) => Number.isFinite(p.x))) : [];
  const limits = chart.id === "eps" ? [...new Set(schemes.map((s) => s.summary && s.summary.capped && s.summary.target_eps).filter(Boolean))] : [];
  const values = lines.flatMap((line) => line.points.flatMap((p) => (Number.isFinite(p.sd) ? [p.bottom, p.top, p.low, p.high] : [p.mean])));
  const frame = canvas(place, options.height,
    (a, b) => scale(finite.map((p) => p.x), a, b, false, [0]),
    (a, b) => scale(values, a, b, options.log, [...limits, ...(options.log ? [] : chart.whole ? [0, 1] : chart.id === "eps" ? [0] : [])], PAD),
    { x: overEps ? "ε of the worst client, mean over seeds" : chart.over, y: chart.label + (options.log ? " (log)" : "") });
  if (!frame) return empty(place, lines.length ? "infinite or undefined throughout" : "nothing to show");
  const { svg, box, x, y } = frame;
  const fit = (value) => (y.usable(value) ? y(value) : value === 0 || value < 0 ? (options.log ? box.bottom : NaN) : NaN);
  for (const limit of limits) {
    svg.append(node("line", { class: "limit", x1: box.left, x2: box.right, y1: y(limit), y2: y(limit) }));
    svg.append(node("text", { x: box.left + 6, y: y(limit) + 14 }, `cap ε = ${show(limit)}`));
  }
  options.seeds = lines.reduce((sum, line) => sum + line.seeds.length, 0) <= MOST_SEEDS && lines.some((line) => line.seeds.length > 1);
  for (const line of lines) svg.append(flats.includes(line) ? flat(line, box, fit) : curve(line, x, fit, options));
  place.replaceChildren(svg);
  svg.setAttribute("aria-label", describe(chart, lines));
  readOut(place, svg, box, lines.filter((line) => !flats.includes(line)), x, y, overEps, chart);
}

/** A text with a tail, cut so that it fits so many pixels. */
function clip(text, pixels, tail) {
  const room = Math.floor(pixels / 6.6) - tail.length;
  return (text.length > room ? `${text.slice(0, Math.max(room - 1, 1))}…` : text) + tail;
}

/** A scheme without a finite eps, on the eps axis: its last value, as a level to compare with. */
function flat(line, box, fit) {
  const last = line.points[line.points.length - 1], { colour, dash } = style(line.scheme.id);
  const group = node("g", { "data-scheme": line.scheme.id });
  if (!Number.isFinite(last.mean)) return group;
  group.append(node("line", { x1: box.left, x2: box.right, y1: fit(last.mean), y2: fit(last.mean), stroke: colour, "stroke-width": 1.6, "stroke-dasharray": dash || "3 3" }));
  group.append(node("text", { x: box.right - 2, y: fit(last.mean) - 5, "text-anchor": "end" }, clip(line.scheme.label, box.right - box.left, ": ε = ∞")));
  return group;
}

function curve(line, x, fit, options) {
  const { colour, dash, shape } = style(line.scheme.id);
  const group = node("g", { "data-scheme": line.scheme.id });
  const good = line.points.filter((p) => Number.isFinite(p.x));
  const spread = good.filter((p) => Number.isFinite(p.sd));
  const outline = [...spread.map((p) => [x(p.x), fit(p.top)]), ...spread.reverse().map((p) => [x(p.x), fit(p.bottom)])];
  if (outline.length) group.append(node("path", { d: `${path(outline)}Z`, fill: colour, opacity: 0.15 }));
  if (options.seeds) {
    for (const seed of line.seeds) group.append(node("path", { class: "seed", d: path(seed.map((p) => [Number.isFinite(p.x) ? x(p.x) : NaN, fit(p.y)])), fill: "none", stroke: colour, "stroke-width": 0.8, opacity: 0.3 }));
  }
  const mean = good.map((p) => [x(p.x), fit(p.mean)]);
  group.append(node("path", { class: "mean", d: path(mean), fill: "none", stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dash, "stroke-linejoin": "round" }));
  const last = good[good.length - 1];
  for (const p of good) if (p.ends && p !== last && !Number.isNaN(fit(p.mean))) group.append(node("line", { class: "stop", x1: x(p.x), x2: x(p.x), y1: fit(p.mean) - 6, y2: fit(p.mean) + 6, stroke: colour, "stroke-width": 1.4 }));
  const every = Math.max(1, Math.ceil(mean.length / 12));
  mean.forEach(([px, py], n) => {
    if ((mean.length - 1 - n) % every === 0 && !Number.isNaN(px + py)) group.append(marker(shape, px, py, 3.4, colour));
  });
  return group;
}

function describe(chart, lines) {
  const last = lines.map((line) => {
    const p = [...line.points].reverse().find((point) => point.count);
    return p ? `${line.scheme.label} ends at ${show(p.mean)}` : `${line.scheme.label}: no values`;
  });
  return `${chart.title}. ${last.join("; ")}. Arrow keys move the read-out.`;
}

function empty(place, text) {
  const said = document.createElement("p");
  said.className = "empty";
  said.textContent = text;
  place.replaceChildren(said);
}

/** Values under the pointer or, with the arrow keys, under a cursor. */
function readOut(place, svg, box, lines, x, y, overEps, chart) {
  const cursor = node("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const dots = node("g");
  svg.append(cursor, dots);
  const read = document.createElement("div");
  read.className = "read";
  read.hidden = true;
  place.append(read);
  const stops = [...new Set(lines.flatMap((line) => line.points.map((p) => p.x).filter(Number.isFinite)))].sort((a, b) => a - b);
  if (!stops.length) return;
  const pixels = stops.map((stop) => x(stop));
  let at = -1;
  const move = (index, aloud) => {
    at = Math.min(Math.max(index, 0), stops.length - 1);
    const px = pixels[at];
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    cursor.setAttribute("visibility", "visible");
    dots.replaceChildren();
    const rows = lines.map((line) => {
      const near = line.points.filter((p) => Number.isFinite(p.x)).reduce((a, b) => (Math.abs(b.x - stops[at]) < Math.abs(a.x - stops[at]) ? b : a), { x: Infinity });
      if (!Number.isFinite(near.x) || (!overEps && near.x !== stops[at])) return null;
      if (y.usable(near.mean)) dots.append(node("circle", { cx: x(near.x), cy: y(near.mean), r: 4.5, fill: "none", stroke: style(line.scheme.id).colour, "stroke-width": 2 }));
      const where = overEps ? ` at ε ${show(near.x, 3)}, round ${near.round}` : "";
      const band = Number.isFinite(near.sd) ? ` ± ${show(near.sd, 2)}` : "";
      const ended = near.stopped ? `, ${near.stopped} stopped` : "";
      const of = chart.over === "round" ? ` (${near.count} seed${near.count === 1 ? "" : "s"}${ended})` : "";
      return { id: line.scheme.id, text: `${line.scheme.label}: ${show(near.mean)}${band}${where}${of}` };
    }).filter(Boolean);
    tell(read, overEps ? `ε ${show(stops[at], 3)}` : `${chart.over} ${stops[at]}`, rows, px / box.width, aloud);
  };
  const hide = () => { read.hidden = true; cursor.setAttribute("visibility", "hidden"); dots.replaceChildren(); };
  const nearest = (event) => {
    const bounds = svg.getBoundingClientRect(), px = ((event.clientX - bounds.left) / bounds.width) * box.width;
    return pixels.reduce((best, pixel, n) => (Math.abs(pixel - px) < Math.abs(pixels[best] - px) ? n : best), 0);
  };
  svg.addEventListener("pointermove", (event) => move(nearest(event)));
  svg.addEventListener("pointerdown", (event) => move(nearest(event)));
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length }[event.key];
    if (step) { event.preventDefault(); move(at < 0 && step > 0 ? 0 : at + step, true); }
    if (event.key === "Escape") hide();
  });
}

/** Fill the read-out box; beside the cursor, on the side with more room. */
function tell(read, title, rows, share, aloud) {
  const head = document.createElement("b");
  head.textContent = title;
  const lines = rows.map((row) => {
    const line = document.createElement("div");
    const key = document.createElement("span");
    key.className = "key";
    if (row.id !== undefined) key.append(swatch(row.id));
    line.append(key, row.text);
    return line;
  });
  read.replaceChildren(head, ...lines);
  read.hidden = false;
  const left = share < 0.5;
  read.style.left = left ? `calc(${share * 100}% + 12px)` : "auto";
  read.style.right = left ? "auto" : `calc(${(1 - share) * 100}% + 12px)`;
  if (aloud) document.getElementById("said").textContent = `${title}. ${rows.map((row) => row.text).join(". ")}`;
}
