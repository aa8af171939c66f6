// The records of a topic: the newest, or from an offset or a time on, searched by key and text. Nothing is read until
// somebody asks: each look is an entry in Airflow's audit log, and ends when this view is left.

import { ActionButton } from "./action_button.js";
import { get, pageApi } from "./api.js";
import { CheckboxField } from "./checkbox.js";
import { useCluster } from "./cluster_context.js";
import { Empty, Head, Loading, Notice, Problem } from "./components.js";
import { bytes, milliseconds, number, plural, time } from "./format.js";
import { Fragment, UI, h, useEffect, useState } from "./airflow_ui.js";
import { Table } from "./table.js";

const { Box, Button, Code, Field, Flex, Input, NativeSelect, Text } = UI;
const STARTS = [
  ["newest", "the newest"],
  ["offset", "from an offset"],
  ["time", "from a time"],
];
const LIMITS = [20, 50, 100];
const FIELDS = ["start", "at", "limit", "partition", "key", "text", "follow"];
const LONGEST = 160;
// Who follows the newest records looks again after this time, so often; each look is an entry in the audit log.
const FOLLOW_MS = 5000;
const FOLLOWED = 60;

export function Records() {
  const { place, actions } = useCluster();
  const name = place.get("topic");
  const asked = place.get("look") !== "";
  return h(
    Flex,
    { direction: "column", gap: "4" },
    h(
      Head,
      { list: name, to: place.to({ view: "topic", topic: name }), name: "Records" },
      actions.records &&
        h(
          ActionButton,
          {
            action: "copy_records",
            values: { ...chosen(place), clusters: actions.get("copy_records")?.other_conn_ids ?? [] },
            plain: true,
          },
          "Copy",
        ),
      h(ActionButton, { action: "send_record", values: { topic: name }, plain: true }, "Send a record"),
    ),
    h(Question, { key: FIELDS.map(place.get).join("\n") }),
    asked
      ? h(Look, { key: FIELDS.map(place.get).join("\n") + place.get("look") })
      : h(Empty, { title: "Nothing was read yet." }, "Each look at records is an entry in Airflow's audit log."),
  );
}

// What the dialog begins with: the records that are looked at.
function chosen(place) {
  const [start, at] = [place.get("start") || "newest", place.get("at")];
  return {
    topic: place.get("topic"),
    start,
    [start === "time" ? "time" : "offset"]: at,
    limit: place.get("limit") || (start === "newest" ? "20" : ""),
    partitions: place.get("partition"),
    key: place.get("key"),
    text: place.get("text"),
  };
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
    start === "newest" &&
      h(CheckboxField, {
        label: "Follow",
        on: values.follow === "1",
        set: (on) => setValues((old) => ({ ...old, follow: on ? "1" : "" })),
        paddingBottom: "2",
      }),
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

// Whether the question is to be asked again and again; pure.
export function follows({ start, follow }) {
  return follow === "1" && (start || "newest") === "newest";
}

// Whether somebody who follows looks again after that error: what is wrong with the question stays so. Pure.
export function passes(problem) {
  return !(problem.status >= 400 && problem.status < 500);
}

// One look, or many of somebody who follows; given up when the view is left, not made while it is hidden.
function Look() {
  const { place, conn } = useCluster();
  const [state, setState] = useState({ data: null, problem: null, left: FOLLOWED });
  const values = Object.fromEntries(FIELDS.map((name) => [name, place.get(name)]));
  const following = follows(values);
  useEffect(() => {
    const leaving = new AbortController();
    const address = pageApi("records", { conn_id: conn, topic: place.get("topic"), ...query(values) });
    let [timer, left] = [0, following ? FOLLOWED : 1];
    const look = async () => {
      let problem = null;
      if (!document.hidden) {
        try {
          const data = await get(address, { signal: leaving.signal });
          left -= 1;
          setState({ data, problem, left });
        } catch (found) {
          if (leaving.signal.aborted) return;
          problem = found;
          setState((old) => ({ ...old, problem }));
        }
      }
      if (left > 0 && following && !(problem && !passes(problem))) timer = setTimeout(look, FOLLOW_MS);
    };
    look();
    return () => {
      leaving.abort();
      clearTimeout(timer);
    };
  }, []);
  if (!state.data && state.problem) return h(Problem, { problem: state.problem });
  if (!state.data) return h(Loading, { what: "records", rows: 6 });
  return h(
    Fragment,
    null,
    h(Problem, { problem: state.problem }),
    following &&
      h(
        Text,
        { color: "fg.muted", fontSize: "sm" },
        state.left > 0
          ? "Followed by a look every 5 s; each is an entry in Airflow's audit log."
          : "These were followed for some time. Look again to go on.",
      ),
    h(Found, { data: state.data }),
  );
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
      Flex,
      { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
      h(
        Text,
        { color: "fg.muted", fontSize: "sm", role: "status" },
        `${plural(data.records.length, "record")} of ${number(data.looked_at)} that were read (${bytes(data.bytes)}).`,
        ENDED[data.ended] && ` ${ENDED[data.ended]} Begin further on, or choose partitions.`,
        data.masked && " Fields of this topic are hidden from you.",
      ),
      data.records.length > 0 &&
        h(
          Button,
          { size: "xs", variant: "outline", colorPalette: "gray", onClick: () => save(data) },
          "Save as a file",
        ),
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
          cards: true,
        }),
  );
}

// One JSON object a line, each as it is shown: what is hidden or cut here is so in the file. Pure.
export function asLines({ topic, records }) {
  return records.map((record) => `${JSON.stringify({ topic, ...record })}\n`).join("");
}

function save(data) {
  const url = URL.createObjectURL(new Blob([asLines(data)], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `${data.topic}.jsonl` });
  link.click();
  URL.revokeObjectURL(url);
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
  const long = line.length > LONGEST || shown.includes("\n") || content?.cut || content?.problem;
  if (!long && !more) return h("span", { title: told(content), style: { wordBreak: "break-word" } }, line);
  return h(
    "details",
    null,
    h(
      "summary",
      { style: { cursor: "pointer", wordBreak: "break-word" }, title: told(content) },
      line.length > LONGEST ? `${line.slice(0, LONGEST)} …` : line,
      content?.problem && h(Text, { color: "fg.warning", fontSize: "sm" }, `Not decoded: ${content.problem}.`),
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

function headerText(value) {
  if (value === null) return "null";
  return value.kind === "hidden" ? "hidden" : `${value.text}${value.cut ? " …" : ""}`;
}

function Headers({ row }) {
  const left = row.headers_total - row.headers.length;
  return h(
    Box,
    { fontSize: "xs", color: "fg.muted", marginTop: "1" },
    row.transactional && h("div", null, "Written in a transaction, which may be open or aborted."),
    row.headers.map(([name, value], index) =>
      h("div", { key: index }, `${name}: ${headerText(value)}`),
    ),
    left > 0 && h("div", null, `and ${plural(left, "header")} more`),
  );
}
