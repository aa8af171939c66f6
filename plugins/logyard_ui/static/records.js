// The records of a topic: the newest, or from an offset or a time on, searched by key and text. Nothing is read until
// somebody asks: each look is an entry in Airflow's audit log, and ends when this view is left.

import { get, pageApi } from "./api.js";
import { useCluster } from "./cluster_context.js";
import { Empty, Head, Loading, Notice, Problem } from "./components.js";
import { bytes, number, plural, time } from "./format.js";
import { Fragment, UI, h, useEffect, useState } from "./airflow_ui.js";
import { Table } from "./table.js";

const { Box, Button, Code, Field, Flex, Input, NativeSelect, Text } = UI;
const STARTS = [
  ["newest", "the newest"],
  ["offset", "from an offset"],
  ["time", "from a time"],
];
const LIMITS = [20, 50, 100];
const FIELDS = ["start", "at", "limit", "partition", "key", "text"];
const LONGEST = 160;

export function Records() {
  const { place } = useCluster();
  const name = place.get("topic");
  const asked = place.get("look") !== "";
  return h(
    Flex,
    { direction: "column", gap: "4" },
    h(Head, { list: name, to: place.to({ view: "topic", topic: name }), name: "Records" }),
    h(Question, { key: FIELDS.map(place.get).join("\n") }),
    asked
      ? h(Look, { key: FIELDS.map(place.get).join("\n") + place.get("look") })
      : h(Empty, { title: "Nothing was read yet." }, "Each look at records is an entry in Airflow's audit log."),
  );
}

function Question() {
  const { place } = useCluster();
  const [values, setValues] = useState(() => Object.fromEntries(FIELDS.map((name) => [name, place.get(name)])));
  const set = (name) => (event) => setValues((old) => ({ ...old, [name]: event.target.value }));
  const problem = wrong(values);
  const submit = (event) => {
    event.preventDefault();
    // Another number: the same question again is another look.
    if (!problem) place.stay({ ...values, look: Number(place.get("look") || 0) + 1 }, { replace: false });
  };
  const start = values.start || "newest";
  return h(
    Flex,
    { as: "form", onSubmit: submit, gap: "3", wrap: "wrap", alignItems: "end", "aria-label": "What to look at" },
    h(Choice, { label: "Records", name: "start", value: start, options: STARTS, onChange: set("start") }),
    start !== "newest" &&
      h(Entry, {
        label: start === "time" ? "Time (2026-01-31T12:00, your zone)" : "Offset",
        name: "at",
        value: values.at,
        onChange: set("at"),
        width: "16rem",
      }),
    h(Choice, {
      label: "At most",
      name: "limit",
      value: values.limit || "20",
      options: LIMITS.map((limit) => [String(limit), String(limit)]),
      onChange: set("limit"),
    }),
    h(Entry, {
      label: "Partitions",
      name: "partition",
      value: values.partition,
      onChange: set("partition"),
      placeholder: "all",
      width: "8rem",
    }),
    h(Entry, { label: "Key contains", name: "key", value: values.key, onChange: set("key") }),
    h(Entry, { label: "Text contains", name: "text", value: values.text, onChange: set("text") }),
    h(Button, { type: "submit", size: "sm", colorPalette: "brand", disabled: Boolean(problem) }, "Look"),
    problem && h(Text, { color: "fg.error", fontSize: "sm", width: "full" }, problem),
  );
}

// What is wrong with the question, or "".
export function wrong({ start, at, partition }) {
  if (start === "offset" && !/^\d{1,18}$/.test(at.trim())) return "Give an offset: a whole number.";
  if (start === "time" && !(milliseconds(at) >= 0)) return "Give a time such as 2026-01-31T12:00.";
  if (!/^(\d{1,7}([\s,]+\d{1,7})*)?$/.test(partition.trim())) return "Partitions are numbers, such as 0, 3.";
  return "";
}

// A time as ms since 1970; digits alone are that already.
export function milliseconds(text) {
  const found = /^\d{10,}$/.test(text.trim()) ? Number(text) : Date.parse(text.trim());
  return Number.isFinite(found) ? found : NaN;
}

// The question as the route takes it.
export function query({ start, at, limit, partition, key, text }) {
  return {
    start: start || undefined,
    at: start === "offset" ? at.trim() : start === "time" ? milliseconds(at) : undefined,
    limit: limit || undefined,
    partition: partition.split(/[\s,]+/).filter(Boolean),
    key,
    text,
  };
}

function Choice({ label, name, value, options, onChange }) {
  return h(
    Field.Root,
    { width: "auto" },
    h(Field.Label, null, label),
    h(
      NativeSelect.Root,
      { size: "sm", width: "auto" },
      h(
        NativeSelect.Field,
        { name, value, onChange },
        options.map(([one, text]) => h("option", { key: one, value: one }, text)),
      ),
      h(NativeSelect.Indicator),
    ),
  );
}

function Entry({ label, width = "12rem", ...rest }) {
  return h(
    Field.Root,
    { width: "auto", maxWidth: "full" },
    h(Field.Label, null, label),
    h(Input, { size: "sm", width, maxWidth: "full", autoComplete: "off", spellCheck: false, ...rest }),
  );
}

// One look; it is given up when the view is left.
function Look() {
  const { place, conn } = useCluster();
  const [state, setState] = useState({ data: null, problem: null });
  useEffect(() => {
    const leaving = new AbortController();
    const question = query(Object.fromEntries(FIELDS.map((name) => [name, place.get(name)])));
    get(pageApi("records", { conn_id: conn, topic: place.get("topic"), ...question }), { signal: leaving.signal })
      .then((data) => setState({ data, problem: null }))
      .catch((problem) => leaving.signal.aborted || setState({ data: null, problem }));
    return () => leaving.abort();
  }, []);
  if (state.problem) return h(Problem, { problem: state.problem });
  if (!state.data) return h(Loading, { what: "records", rows: 6 });
  return h(Found, { data: state.data });
}

const ENDED = {
  bytes: "It ended there: one look reads 32 MiB at most.",
  records: "It ended there: one look goes through 50,000 records at most.",
  time: "It ended there: one look takes 6 seconds at most.",
};

function Found({ data }) {
  const problems = Object.entries(data.problems);
  return h(
    Fragment,
    null,
    h(
      Text,
      { color: "fg.muted", fontSize: "sm", role: "status" },
      `${plural(data.records.length, "record")} of ${number(data.looked_at)} that were read (${bytes(data.bytes)}).`,
      ENDED[data.ended] && ` ${ENDED[data.ended]} Begin further on, or choose partitions.`,
      data.masked && " Fields of this topic are hidden from you.",
    ),
    problems.map(([partition, text]) =>
      h(Notice, { key: partition, status: "warning" }, `Partition ${partition}: ${text}`),
    ),
    data.records.length === 0
      ? h(Empty, { title: "There is no such record." })
      : h(Table, {
          name: "Records",
          columns: COLUMNS,
          rows: data.records,
          rowKey: (row) => `${row.partition} ${row.offset}`,
        }),
  );
}

const COLUMNS = [
  { id: "partition", label: "Partition", end: true, width: "6.5rem", cell: (row) => row.partition },
  { id: "offset", label: "Offset", end: true, width: "8rem", cell: (row) => number(row.offset) },
  { id: "time", label: "Time", width: "13rem", cell: (row) => time(row.timestamp_ms) },
  { id: "key", label: "Key", width: "16rem", cell: (row) => h(Content, { content: row.key }) },
  { id: "value", label: "Value", least: 22, cell: (row) => h(Content, { content: row.value, row }) },
];

// One line; opened, the whole text, and below a value the record's headers.
function Content({ content, row }) {
  const more = row && (row.headers.length > 0 || row.transactional);
  if (content === null && !more) return h("span", { "data-quiet": "" }, "null");
  const shown = content === null ? "null" : content.kind === "hidden" ? "hidden" : content.text || "empty";
  const line = shown.replace(/\s+/g, " ");
  const long = line.length > LONGEST || shown.includes("\n") || content?.cut;
  if (!long && !more) return h("span", { title: told(content), style: { wordBreak: "break-word" } }, line);
  return h(
    "details",
    null,
    h(
      "summary",
      { style: { cursor: "pointer", wordBreak: "break-word" }, title: told(content) },
      line.length > LONGEST ? `${line.slice(0, LONGEST)} …` : line,
    ),
    h(
      Code,
      {
        as: "pre",
        display: "block",
        whiteSpace: "pre-wrap",
        wordBreak: "break-word",
        maxHeight: "24rem",
        overflow: "auto",
      },
      content?.cut ? `${shown}\n… only the beginning of ${bytes(content.size)}` : shown,
    ),
    more && h(Headers, { row }),
  );
}

function told(content) {
  return content === null ? undefined : `${content.kind}, ${bytes(content.size)}`;
}

function Headers({ row }) {
  const left = row.headers_total - row.headers.length;
  return h(
    Box,
    { fontSize: "xs", color: "fg.muted", marginTop: "1" },
    row.transactional && h("div", null, "Written in a transaction, which may be open or aborted."),
    row.headers.map(([name, value], index) =>
      h("div", { key: index }, `${name}: ${value === null ? "null" : value.kind === "hidden" ? "hidden" : value.text}`),
    ),
    left > 0 && h("div", null, `and ${plural(left, "header")} more`),
  );
}
