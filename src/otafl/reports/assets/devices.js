// Charts with one place per device: bars of energy and eps, and the heat map of who was silent.

/** Values of one scheme per group of devices: `dot` is the main value, `tip` the largest. */
function deviceValues(scheme, chart) {
  if (chart.id === "device_eps") {
    const found = scheme.card && scheme.card.device_eps;
    return found && { start: found.start, dot: found.max.map(number), tip: null, limit: null };
  }
  const bars = scheme.devices && scheme.devices.bars;
  return bars && { start: bars.start, dot: bars.mean.map(number), tip: bars.max.map(number), limit: bars.limit.map(number) };
}

function drawBars(place, chart, schemes, options) {
  const rows = schemes.map((scheme) => ({ scheme, ...deviceValues(scheme, chart) }))
    .filter((row) => row.start && (!chart.on_air || onAir(row.scheme)));
  const drawn = rows.filter((row) => row.dot.some((value) => Number.isFinite(value) && (!options.log || value > 0)));
  if (!drawn.length) return empty(place, rows.length ? "infinite or zero for every device" : "no scheme here transmits over the air");
  const count = Math.max(...drawn.map((row) => row.start.length));
  const values = drawn.flatMap((row) => [...row.dot, ...(row.tip || []), ...(row.limit || [])]);
  const frame = canvas(place, options.height, (a, b) => slots(count, drawn, a, b),
    (a, b) => scale(values, a, b, options.log, options.log ? [] : [0], PAD), { x: "device", y: chart.label + (options.log ? " (log)" : "") });
  if (!frame) return empty(place, "nothing to show");
  const { svg, box, x, y } = frame;
  const width = (box.right - box.left) / count, step = Math.min(width / (drawn.length + 1), 9);
  svg.append(limits(drawn, x, y, width));
  drawn.forEach((row, n) => svg.append(lollipops(row, (index) => x.middle(index) + (n - (drawn.length - 1) / 2) * step, y, width)));
  place.replaceChildren(svg);
  svg.setAttribute("aria-label", `${chart.title}. ${drawn.map((row) => `${row.scheme.label}: largest ${show(Math.max(...(row.tip || row.dot)))}`).join("; ")}.`);
  readDevices(place, svg, box, drawn, x, count);
}

/** One slot per group of devices, labelled with its first device. */
function slots(count, drawn, from, to) {
  const start = drawn.find((row) => row.start.length === count).start, width = (to - from) / count;
  const map = (tick) => map.middle(start.indexOf(tick));
  map.middle = (index) => from + (index + 0.5) * width;
  map.ticks = (wanted) => { const every = Math.max(1, roundStep(count / (wanted * 1.5))); return start.filter((_, n) => n % every === 0); };
  map.start = start;
  return map;
}

/** The limit of each device, once where all schemes have the same. */
function limits(drawn, x, y, width) {
  const group = node("g"), seen = new Set();
  for (const row of drawn) (row.limit || []).forEach((limit, n) => {
    if (!y.usable(limit) || seen.has(`${n} ${limit}`)) return;
    seen.add(`${n} ${limit}`);
    const middle = x.middle(n);
    group.append(node("line", { class: "level", x1: middle - width / 2, x2: middle + width / 2, y1: y(limit), y2: y(limit) }));
  });
  return group;
}

function lollipops(row, middle, y, width) {
  const { colour, shape } = style(row.scheme.id), group = node("g", { "data-scheme": row.scheme.id });
  row.dot.forEach((value, n) => {
    if (!y.usable(value)) return;
    const px = middle(n), tip = row.tip && row.tip[n];
    if (tip && y.usable(tip)) {
      group.append(node("line", { x1: px, x2: px, y1: y(value), y2: y(tip), stroke: colour, "stroke-width": 1.6, opacity: 0.55 }));
      group.append(node("line", { x1: px - 3, x2: px + 3, y1: y(tip), y2: y(tip), stroke: colour, "stroke-width": 1.6 }));
    }
    group.append(marker(shape, px, y(value), Math.max(1.6, Math.min(3.6, width / 3)), colour));
  });
  return group;
}

const deviceName = (start, index, count) => {
  const next = index + 1 < start.length ? start[index + 1] : count;
  return next - start[index] > 1 ? `devices ${start[index]}–${next - 1}` : `device ${start[index]}`;
};

function readDevices(place, svg, box, drawn, x, count) {
  const read = document.createElement("div");
  read.className = "read";
  read.hidden = true;
  place.append(read);
  let at = -1;
  const move = (index, aloud) => {
    at = Math.min(Math.max(index, 0), count - 1);
    const rows = drawn.map((row) => ({ id: row.scheme.id, text: `${row.scheme.label}: ${row.tip ? `mean ${show(row.dot[at])}, max ${show(row.tip[at])}${Number.isFinite(row.limit[at]) ? `, limit ${show(row.limit[at])}` : ""}` : show(row.dot[at])}` }));
    const all = drawn[0].scheme.devices ? drawn[0].scheme.devices.count : x.start[count - 1] + 1;
    tell(read, deviceName(x.start, at, all), rows, x.middle(at) / box.width, aloud);
  };
  const over = (event) => {
    const bounds = svg.getBoundingClientRect(), px = ((event.clientX - bounds.left) / bounds.width) * box.width;
    move(Math.floor(((px - box.left) / (box.right - box.left)) * count));
  };
  svg.addEventListener("pointermove", over);
  svg.addEventListener("pointerdown", over);
  svg.addEventListener("pointerleave", () => { read.hidden = true; });
  svg.addEventListener("blur", () => { read.hidden = true; });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); move(at + step, true); }
  });
}

/** Silent nowhere is the paper's colour; the smallest share above zero is already visible. */
function heatColour(share, ramp) {
  const [zero, low, high] = ramp;
  return share > 0 ? low.map((value, n) => value + (high[n] - value) * share) : zero;
}

function drawHeat(place, chart, schemes) {
  const found = schemes.filter((scheme) => scheme.devices);
  if (!found.length) return empty(place, "devices were not recorded");
  const tokens = getComputedStyle(document.documentElement);
  const ramp = ["--heat-0", "--heat-1", "--heat-2"].map((name) => tokens.getPropertyValue(name).trim().split(" ").map(Number));
  const maps = document.createElement("div");
  maps.className = "maps";
  let anyone = false;
  for (const scheme of found) {
    const heat = scheme.devices.heat, silent = heat.silent.flat().reduce((a, b) => a + b, 0), total = heat.total.flat().reduce((a, b) => a + b, 0);
    anyone = anyone || silent > 0;
    maps.append(silent ? heatMap(scheme, heat, silent / total, ramp) : quiet(scheme, total));
  }
  place.replaceChildren(maps);
  if (!anyone) return;
  const legend = document.createElement("div");
  legend.className = "ramp";
  legend.append("sent in all seeds", document.createElement("i"), "silent in all");
  place.append(legend);
}

function mapTitle(scheme, text) {
  const box = document.createElement("div"), head = document.createElement("h4"), key = document.createElement("span");
  box.className = "map";
  box.dataset.scheme = scheme.id;
  key.className = "key";
  key.append(swatch(scheme.id));
  head.append(key, `${scheme.label}: ${text}`);
  box.append(head);
  return box;
}

function quiet(scheme, total) {
  const box = mapTitle(scheme, `nobody was silent (${total.toLocaleString("en")} transmissions)`);
  box.classList.add("line");
  return box;
}

function heatMap(scheme, heat, share, ramp) {
  const box = mapTitle(scheme, `silent in ${show(100 * share, 3)} % of transmissions`);
  const rows = heat.silent.length, columns = heat.silent[0].length;
  const picture = document.createElement("canvas");
  picture.width = columns;
  picture.height = rows;
  const context = picture.getContext("2d"), image = context.createImageData(columns, rows);
  heat.silent.forEach((row, r) => row.forEach((silent, c) => {
    const total = heat.total[r][c];
    const colour = total ? heatColour(silent / total, ramp) : ramp[0];
    image.data.set([...colour.map(Math.round), total ? 255 : 0], 4 * (r * columns + c));
  }));
  context.putImageData(image, 0, 0);
  const shares = heat.silent.map((row, r) => row.reduce((a, b) => a + b, 0) / Math.max(1, heat.total[r].reduce((a, b) => a + b, 0)));
  const worst = shares.indexOf(Math.max(...shares));
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `Rows are devices, columns are rounds. Most silent: ${deviceName(heat.row_start, worst, scheme.devices.count)}, ${show(100 * shares[worst], 3)} %.`);
  const ends = document.createElement("div"), left = document.createElement("span"), right = document.createElement("span");
  ends.className = "ends";
  left.textContent = `round 0; devices 0 (top) to ${scheme.devices.count - 1}`;
  right.textContent = `round ${scheme.devices.rounds - 1}`;
  ends.append(left, right);
  const read = document.createElement("div");
  read.className = "read";
  read.hidden = true;
  box.append(picture, ends, read);
  picture.addEventListener("pointermove", (event) => {
    const bounds = picture.getBoundingClientRect();
    const c = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - bounds.left) / bounds.width) * columns)));
    const r = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - bounds.top) / bounds.height) * rows)));
    const next = c + 1 < columns ? heat.column_start[c + 1] : scheme.devices.rounds, first = heat.column_start[c];
    const when = next - first > 1 ? `rounds ${first}–${next - 1}` : `round ${first}`;
    tell(read, `${deviceName(heat.row_start, r, scheme.devices.count)}, ${when}`, [{ text: `silent in ${heat.silent[r][c]} of ${heat.total[r][c]}` }], (c + 0.5) / columns);
  });
  picture.addEventListener("pointerleave", () => { read.hidden = true; });
  return box;
}
