// Numbers as the store has them (null: not a number, "inf": infinity), statistics over seeds, scales and ticks.

const number = (value) => (value === null || value === undefined ? NaN : value === "inf" ? Infinity : value === "-inf" ? -Infinity : value);

/** Mean and sample standard deviation of one column of a (seeds, rounds) matrix, over the seeds that have a number there. */
function column(matrix, index) {
  const all = matrix.map((row) => number(row[index])).filter((value) => !Number.isNaN(value));
  const count = all.length;
  if (!count) return { mean: NaN, sd: NaN, count, low: NaN, high: NaN };
  if (!all.every(Number.isFinite)) return { mean: Infinity, sd: NaN, count, low: NaN, high: NaN };
  const mean = all.reduce((sum, value) => sum + value, 0) / count;
  const sd = count > 1 ? Math.sqrt(all.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1)) : NaN;
  return { mean, sd, count, low: Math.min(...all), high: Math.max(...all) };
}

function show(value, digits = 4) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(digits));
  const text = size >= 1e5 || size < 1e-3 ? rounded.toExponential() : String(rounded);
  return text.replace("-", "−");
}

/** The next of 1, 2, 5 times a power of ten. */
function roundStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= raw * 0.999);
}

function linearTicks(low, high, wanted) {
  const step = roundStep((high - low) / Math.max(wanted, 1));
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / 6));
  const ticks = [];
  for (let n = first; n <= last; n += every) ticks.push(Number(`1e${n}`));
  if (ticks.length >= 3) return ticks;
  const finer = [];
  for (let n = first - 1; n <= last; n++) for (const m of [1, 2, 5]) {
    const tick = Number(`${m}e${n}`);
    if (tick >= low * 0.999 && tick <= high * 1.001) finer.push(tick);
  }
  return finer.length > 1 ? finer : linearTicks(low, high, 4).filter((tick) => tick > 0);
}

/** A map from the range of values, and a margin of `pad` times that range, to pixels; linear or logarithmic. */
function scale(values, from, to, log, include = [], pad = 0) {
  const usable = [...values, ...include].filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!usable.length) return null;
  let low = usable.reduce((a, b) => Math.min(a, b)), high = usable.reduce((a, b) => Math.max(a, b));
  if (low === high) [low, high] = log ? [low / 2, high * 2] : low === 0 ? [-0.5, 0.5] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  if (log) [low, high] = [low * (low / high) ** pad, high * (high / low) ** pad];
  else [low, high] = [low - pad * (high - low), high + pad * (high - low)];
  const place = log ? Math.log10 : (value) => value;
  const map = (value) => from + ((place(value) - place(low)) / (place(high) - place(low))) * (to - from);
  map.ticks = (wanted) => (log ? logTicks(low, high) : linearTicks(low, high, wanted));
  map.usable = (value) => Number.isFinite(value) && (!log || value > 0);
  map.low = low;
  map.high = high;
  return map;
}
