// The actions on a topic's records: send one, copy some into another topic. Pure; `actions.js` describes a spec.

import { parse } from "./config_lines.js";
import { milliseconds, plural } from "./format.js";
import { given, names, topicField, whole } from "./forms.js";

export const sendRecord = {
  dag: "send_record",
  title: "Send a record",
  start: "Send it",
  fields: [
    { id: "key", label: "Key", kind: "text", help: "Empty: no key." },
    { id: "tombstone", label: "A null value: in a compacted topic it deletes the key", kind: "flag" },
    {
      id: "value",
      label: "Value",
      kind: "lines",
      rows: 6,
      help: "Text, sent as it is.",
      when: ({ tombstone }) => !tombstone,
    },
    { id: "headers", label: "Headers", kind: "lines", rows: 2, help: "One on each line: name=value" },
    { id: "partition", label: "Partition", kind: "number", help: "Empty: the key decides, or chance without a key." },
  ],
  check: ({ headers, partition, partitions }) =>
    parse(headers ?? "").problem.replace("a setting", "a header") ||
    (partitions && whole(partition) >= partitions ? `The last partition is ${partitions - 1}.` : ""),
  conf: (values) =>
    given({
      topic: values.topic,
      key: values.key === "" ? undefined : values.key,
      value: values.tombstone ? undefined : (values.value ?? ""),
      tombstone: Boolean(values.tombstone),
      headers: parse(values.headers ?? "").settings,
      partition: whole(values.partition),
    }),
  say: (values) => [
    `One record is written to topic ${values.topic}${values.tombstone ? ", with a null value" : ""}.`,
    values.key ? `Its key: ${values.key}` : "It has no key.",
    "Whoever reads the topic gets it: a record cannot be taken back.",
    "What you typed stays in Airflow, as the run's configuration.",
  ],
};

const PLACES = [
  ["offset", "an offset"],
  ["time", "a time"],
];

const offsetField = (id, of) => ({
  id,
  label: "Offset",
  kind: "text",
  required: true,
  when: (values) => values[of] === "offset",
  pattern: /^\d{1,18}$/,
  wrong: "a whole number",
});

const timeField = (id, of) => ({
  id,
  label: "Time (2026-01-31T12:00, your zone)",
  kind: "text",
  required: true,
  when: (values) => values[of] === "time",
});

// What the DAG takes for a place: a word, an offset, or a time in UTC.
function place(kind, offset, time) {
  if (kind === "offset") return offset.trim();
  return kind === "time" ? new Date(milliseconds(time)).toISOString() : kind;
}

function isTime(kind, text) {
  return kind !== "time" || milliseconds(text ?? "") >= 0;
}

const limitOf = ({ limit }) => whole(limit?.trim?.() ?? limit);

function selected(values) {
  const many = limitOf(values);
  const start = {
    earliest: many ? `The first ${plural(many, "record")}` : "All records",
    newest: `The newest ${plural(many ?? 0, "record")}`,
    offset: `${many ? `The first ${plural(many, "record")}` : "All records"} from offset ${values.offset} on`,
    time: `${many ? `The first ${plural(many, "record")}` : "All records"} from ${values.time} on`,
  }[values.start];
  const end = { latest: "", offset: ` and before offset ${values.end_offset}`, time: ` and before ${values.end_time}` };
  const there = values.to_cluster ? ` of cluster ${values.to_cluster}` : "";
  const of = `of ${partitionsOf(values)} are copied from ${values.topic} to ${values.to_topic.trim()}${there}.`;
  return `${start}${end[values.end]} ${of}`;
}

function partitionsOf({ partitions }) {
  const found = names(partitions);
  return found.length ? `partition ${found.join(", ")}` : "every partition";
}

export const copyRecords = {
  dag: "copy_records",
  title: "Copy records",
  start: ({ dry_run }) => (dry_run ? "Count them" : "Copy them"),
  fields: [
    {
      id: "to_cluster",
      label: "Into cluster",
      kind: "choice",
      options: ({ clusters }) => [["", "this one"], ...clusters.map((name) => [name, name])],
      when: ({ clusters }) => clusters?.length > 0,
    },
    {
      ...topicField,
      id: "to_topic",
      label: "Into topic",
      suggest: "topics",
      of: ({ to_cluster }) => to_cluster,
      help: "It exists already.",
    },
    {
      id: "start",
      label: "From",
      kind: "choice",
      options: [["earliest", "the first record"], ["newest", "the newest, as many as below"], ...PLACES],
    },
    offsetField("offset", "start"),
    timeField("time", "start"),
    { id: "end", label: "Up to", kind: "choice", options: [["latest", "the end of now"], ...PLACES] },
    offsetField("end_offset", "end"),
    timeField("end_time", "end"),
    { id: "limit", label: "At most", kind: "number", least: 1, help: "So many records; empty: all of them." },
    {
      id: "partitions",
      label: "Partitions",
      kind: "text",
      pattern: /^\d{1,7}([\s,]+\d{1,7})*$/,
      wrong: "numbers, such as 0, 3",
      help: "Empty: all.",
    },
    { id: "key", label: "Key contains", kind: "text" },
    { id: "text", label: "Text contains", kind: "text", help: "In key, value or a header." },
    { id: "keep_partitions", label: "Into the partitions of the same numbers", kind: "flag" },
    { id: "transactional", label: "In one transaction: all of them or none", kind: "flag", first: true },
    { id: "dry_run", label: "Only count them", kind: "flag" },
  ],
  check: (values) => {
    if (values.to_topic.trim() === values.topic && !values.to_cluster)
      return "Name another topic: this one would be copied into itself.";
    if (values.start === "newest" && !limitOf(values)) return "How many of the newest? Fill in At most.";
    if (limitOf(values) > 100_000) return "At most 100,000 records, or all of them.";
    if (!isTime(values.start, values.time) || !isTime(values.end, values.end_time))
      return "Give a time such as 2026-01-31T12:00.";
    return "";
  },
  conf: (values) =>
    given({
      topic: values.topic,
      to_topic: values.to_topic.trim(),
      to_cluster: values.to_cluster || undefined,
      partitions: names(values.partitions).map(Number),
      start: place(values.start, values.offset, values.time),
      end: place(values.end, values.end_offset, values.end_time),
      limit: limitOf(values),
      key: values.key || undefined,
      text: values.text || undefined,
      keep_partitions: Boolean(values.keep_partitions),
      transactional: Boolean(values.transactional),
      dry_run: Boolean(values.dry_run),
    }),
  say: (values) => [
    values.dry_run ? selected(values).replace("are copied", "would be copied") : selected(values),
    values.key && `Only those whose key contains “${values.key}”.`,
    values.text && `Only those that contain “${values.text}”.`,
    values.dry_run
      ? "They are read and counted; nothing is written."
      : "Keys, values, headers and times are kept. Whoever reads the other topic gets them: they cannot be taken back.",
    values.transactional || values.dry_run ? "" : "A run that fails may have copied a part of them.",
  ].filter(Boolean),
};
