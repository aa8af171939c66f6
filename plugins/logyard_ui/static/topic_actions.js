// The actions on one topic: create, alter, add partitions, empty, delete. Pure; `actions.js` describes a spec.
//
// `asks(values)` is what the brokers are asked before the review (`api/topic_check`), `parts` says which field a part
// of their answer belongs to, where it is not the field of that name.

import { bytes, number } from "./format.js";
import { given, topicField, whole } from "./forms.js";
import { difference, parse } from "./config_lines.js";

function pairs(settings) {
  return Object.entries(settings).map(([name, value]) => `${name}=${value}`);
}

function listed(settings) {
  return Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
}

export const createTopic = {
  dag: "create_topic",
  title: "Create a topic",
  start: "Create it",
  fields: [
    topicField,
    { id: "partitions", label: "Partitions", kind: "number", least: 1, help: "Empty: the broker's default." },
    {
      id: "replication_factor",
      label: "Replicas of each",
      kind: "number",
      least: 1,
      help: "Empty: the broker's default.",
    },
    { id: "configs", label: "Settings", kind: "lines", help: "One on each line: cleanup.policy=compact" },
  ],
  check: (values) => parse(values.configs ?? "").problem,
  asks: (values) => ({
    action: "create_topic",
    topic: values.topic.trim(),
    partitions: whole(values.partitions),
    replication_factor: whole(values.replication_factor),
    set: pairs(parse(values.configs ?? "").settings),
  }),
  conf: (values) => {
    const { settings } = parse(values.configs ?? "");
    return given({
      topic: values.topic.trim(),
      partitions: whole(values.partitions),
      replication_factor: whole(values.replication_factor),
      configs: Object.keys(settings).length ? settings : undefined,
      if_exists: "fail",
    });
  },
  say: (values) => [
    `Topic ${values.topic} is created.`,
    `Partitions: ${values.partitions || "the broker's default"}`,
    `Replicas of each: ${values.replication_factor || "the broker's default"}`,
    ...listed(parse(values.configs ?? "").settings),
  ],
};

export const alterTopic = {
  dag: "topic_lifecycle",
  title: "Change settings",
  start: "Change them",
  fields: [
    {
      id: "configs",
      label: "Settings of the topic",
      kind: "lines",
      rows: 8,
      help: "One on each line. If you remove a line, the setting is unset and its default applies.",
    },
  ],
  check: (values) => {
    const { settings, problem } = parse(values.configs ?? "");
    return problem || (Object.keys(difference(values.before, settings)).length === 0 ? "Nothing is changed yet." : "");
  },
  asks: (values) => {
    const changes = Object.entries(difference(values.before, parse(values.configs).settings));
    return {
      action: "alter_topic",
      topic: values.topic,
      set: pairs(Object.fromEntries(changes.filter(([, value]) => value !== null))),
      unset: changes.filter(([, value]) => value === null).map(([name]) => name),
    };
  },
  conf: (values) => ({ topic: values.topic, alter: difference(values.before, parse(values.configs).settings) }),
  say: (values) => [
    `Settings of topic ${values.topic} change:`,
    ...Object.entries(difference(values.before, parse(values.configs).settings)).map(
      ([name, value]) => `${name}: ${values.before[name] ?? "default"} → ${value ?? "default"}`,
    ),
  ],
};

export const expandTopic = {
  dag: "topic_lifecycle",
  title: "Add partitions",
  start: "Add them",
  fields: [{ id: "expand_to", label: "Partitions in all", kind: "number", least: 1, required: true }],
  check: (values) =>
    Number(values.expand_to) > values.partitions
      ? ""
      : `There are ${values.partitions} already, and partitions cannot be removed.`,
  asks: (values) => ({ action: "expand_topic", topic: values.topic, partitions: whole(values.expand_to) }),
  parts: { partitions: "expand_to" },
  conf: (values) => ({ topic: values.topic, expand_to: whole(values.expand_to) }),
  say: (values) => [
    `Topic ${values.topic} gets ${values.expand_to} partitions instead of ${values.partitions}; this cannot be undone.`,
    "Records with keys go to other partitions than before from then on.",
  ],
};

// `before`: partition → its end when the page was read; what is written later stays.
export const emptyTopic = {
  dag: "topic_lifecycle",
  title: "Delete the records of a topic",
  start: "Delete them",
  danger: true,
  fields: [],
  type: (values) => values.topic,
  conf: (values) => ({ topic: values.topic, delete_records: values.before }),
  say: (values) => [
    `The ${number(values.records)} records that topic ${values.topic} has now are deleted. This cannot be undone.`,
    "Records that are written from now on stay, and so do the topic, its settings and its groups.",
  ],
};

// What `emptyTopic` needs of a topic as the page reads it: {values, problem}, the latter where it cannot be emptied.
export function emptying({ name, partitions, partitions_total, records, configs }) {
  const policy = (configs ?? []).find((one) => one.name === "cleanup.policy")?.value ?? "";
  const problem = !policy.includes("delete")
    ? "Brokers refuse this for a topic that is only compacted."
    : partitions.length < (partitions_total ?? partitions.length) || partitions.some((one) => one.end === null)
      ? "Not all of its offsets are known."
      : records === 0
        ? "It has no records."
        : "";
  const before = Object.fromEntries(partitions.map((one) => [one.partition, one.end]));
  return { values: { topic: name, records, before }, problem: configs ? problem : "Its settings are not known yet." };
}

export const deleteTopic = {
  dag: "topic_lifecycle",
  title: "Delete a topic",
  start: "Delete it",
  danger: true,
  fields: [
    { id: "must_be_empty", label: "Only if it is empty", kind: "flag" },
    { id: "must_have_no_group", label: "Only if no group with members reads it", kind: "flag", first: true },
  ],
  type: (values) => values.topic,
  conf: (values) => ({
    topic: values.topic,
    delete: true,
    must_be_empty: Boolean(values.must_be_empty),
    must_have_no_group: Boolean(values.must_have_no_group),
  }),
  say: (values) => [
    `Topic ${values.topic} is deleted with all its records. This cannot be undone.`,
    `Records: ${number(values.records)}; bytes on all brokers: ${bytes(values.bytes)}.`,
  ],
};
