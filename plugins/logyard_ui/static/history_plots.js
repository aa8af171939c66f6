// What is plotted of a history, and a group's lag in words. Pure; `history.js` renders it.

import { bytes, number, plural, seconds, time } from "./format.js";

const perSecond = (value) => `${short(value)}/s`;
const bytesPerSecond = (value) => `${bytes(value)}/s`;

const PLOTS = [
  ["Records", perSecond, ["records_in", "in"], ["records_out", "out, by groups"]],
  ["Bytes, about", bytesPerSecond, ["bytes_in", "in"], ["bytes_out", "out, by groups"]],
  ["Lag", short, ["lag", "records"]],
  ["Bytes on disk, all replicas", bytes, ["bytes", "bytes"]],
  ["Disks, all that is on them", bytes, ["disk_used", "used"], ["disk_total", "size"]],
];

// A number in few letters: 1.2 M.
export function short(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const [unit, letter] = size >= 1e9 ? [1e9, " G"] : size >= 1e6 ? [1e6, " M"] : size >= 1e4 ? [1e3, " k"] : [1, ""];
  return `${number(Math.round((value / unit) * 10) / 10)}${letter}`;
}

// [{title, format, lines: [[label, values]…]}…], for what is known at two times or more.
export function plots({ series }) {
  return PLOTS.map(([title, format, ...lines]) => ({
    title,
    format,
    binary: format === bytes || format === bytesPerSecond,
    lines: lines
      // One value makes no line, and an axis of years.
      .filter(([name]) => series[name]?.filter((value) => value !== null).length > 1)
      .map(([name, label]) => [label, series[name]]),
  })).filter(({ lines }) => lines.length > 0);
}

// When a directory will be full, in words, by what the last week shows.
export function diskForecast({ path, state, per_day: rate, full_in_s: left, span_s: span, free }) {
  if (state === "too little") return `${path}: ${bytes(free)} free; too little history to say when it is full.`;
  const seen = `over the last ${seconds(span)}`;
  if (state === "steady") return `${path}: ${bytes(free)} free; it does not fill up, ${seen}.`;
  return `${path}: full in ${seconds(left)} at ${bytes(rate)} a day, ${seen}; ${bytes(free)} free.`;
}

// A group's lag, its rate, and when it is caught up, in words; "" where nothing is known.
export function lagNow(now) {
  if (!now) return "";
  const commit = now.last_commit_s
    ? `Its offsets moved last at about ${time(now.last_commit_s * 1000)}.`
    : "Its offsets have not moved in this time.";
  if (now.lag === 0) return `Caught up. ${commit}`;
  const behind = `${plural(now.lag, "record")} behind`;
  if (now.lag_rate === null) return `${behind}. ${commit}`;
  const rate = short(Math.abs(now.lag_rate));
  const left = seconds(now.caught_up_s);
  if (now.lag_rate < 0) return `${behind}, ${rate} fewer each second: caught up in ${left}. ${commit}`;
  if (now.lag_rate > 0) return `${behind}, ${rate} more each second: it does not catch up. ${commit}`;
  return `${behind}, and it stays so. ${commit}`;
}
