// Numbers, bytes and times for people; pure.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Made once: every cell of a scrolling table uses it.
const numbers = new Intl.NumberFormat("en-US");

export function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? numbers.format(value) : "–";
}

export function bytes(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  let unit = 0;
  let left = Math.abs(value);
  while (left >= 1024 && unit < BYTES.length - 1) {
    left /= 1024;
    unit += 1;
  }
  const text = unit === 0 || left >= 100 ? left.toFixed(0) : left.toFixed(1);
  return `${value < 0 ? "-" : ""}${text} ${BYTES[unit]}`;
}

export function seconds(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value < 1) return "under a second";
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} days`;
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function time(milliseconds) {
  if (typeof milliseconds !== "number" || milliseconds <= 0) return "–";
  return new Date(milliseconds).toLocaleString();
}

// A time that was typed as ms since 1970; digits alone are that already.
export function milliseconds(text) {
  const found = /^\d{10,}$/.test(text.trim()) ? Number(text) : Date.parse(text.trim());
  return Number.isFinite(found) ? found : NaN;
}

// The time of day; with its date where that was long ago.
export function clock(milliseconds) {
  if (typeof milliseconds !== "number" || milliseconds <= 0) return "–";
  const at = new Date(milliseconds);
  return Math.abs(Date.now() - milliseconds) < 12 * 3600e3 ? at.toLocaleTimeString() : at.toLocaleString();
}

export function brokersNamed(ids) {
  if (ids.length > 3) return plural(ids.length, "broker");
  return `${ids.length === 1 ? "broker" : "brokers"} ${ids.join(", ")}`;
}

// Why a cluster's state is not known, as one sentence: since when, which brokers, what to do.
export function outageSentence({ problem, outage }) {
  const text = problem || "the cluster does not answer";
  const since = outage?.since_ms ? ` (last read at ${clock(outage.since_ms)})` : "";
  const named = outage?.brokers?.length ? `: ${outage.brokers.join(", ")}` : "";
  return `${text[0].toUpperCase()}${text.slice(1)}${since}${named}.${outage?.advice ? ` ${outage.advice}` : ""}`;
}

export function percent(value, digits = 0) {
  return typeof value === "number" && Number.isFinite(value) ? `${(value * 100).toFixed(digits)} %` : "–";
}

// "topic-3" → ["topic", 3]; a topic's name may hold dashes itself.
export function partitionOf(text) {
  const dash = text.lastIndexOf("-");
  return [text.slice(0, dash), Number(text.slice(dash + 1))];
}

// Characters that are not seen, and those that turn the direction of what follows.
const UNSEEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

// Text that people decide by: a name in it, which anybody may have chosen, looks like no other and moves nothing.
export function plainly(text) {
  if (typeof text !== "string") return text; // a line that is left out
  return text.replace(UNSEEN, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// Names as people read them: t2 before t10.
const collator = new Intl.Collator("en", { numeric: true });

export function compare(left, right) {
  if (typeof left === "number" && typeof right === "number") return left - right;
  if (left === right) return 0;
  if (left === null || left === undefined) return -1;
  if (right === null || right === undefined) return 1;
  return collator.compare(String(left), String(right));
}
