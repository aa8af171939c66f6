// What a reader may start: which DAG it is, what it asks, what is sent as the run's configuration, and the sentences
// that are confirmed. Pure; `action_dialog.js` draws it.
//
// A spec: {dag, title, start, fields (see `forms.js`), conf(values), say(values) → sentences, check(values) → what is
// wrong as a whole, danger, type(values) → a word to type}. `start` and `danger` may be functions of the values.

import { bytes, number, plural } from "./format.js";
import { given, names, throttleField, whole } from "./forms.js";
import { alterTopic, createTopic, deleteTopic, expandTopic } from "./topic_actions.js";

const reassign = {
  dag: "reassign_replicas",
  title: "Move replicas",
  start: "Move them",
  fields: [throttleField],
  conf: (values) => given({ ...values.goals, throttle: whole(values.throttle), approve: false }),
  say: (values) =>
    [
      `${plural(values.plan.partitions_total, "partition")} change, ${bytes(values.plan.bytes_moved)} are copied.`,
      duration(values),
      values.exact
        ? "What moves is exactly the plan that was shown."
        : "The plan was too long to show whole: the DAG plans anew, for the same goals.",
    ].filter(Boolean),
};

function duration({ plan, throttle }) {
  const rate = whole(throttle);
  if (!rate)
    return throttle === "" ? "Without a throttle of its own it runs at the connection's, or at full speed." : "";
  const busiest = Math.max(0, ...Object.values(plan.bytes_in), ...Object.values(plan.bytes_out));
  return `At ${bytes(rate)} per second on each broker it takes at least ${number(Math.ceil(busiest / rate))} s.`;
}

const decommission = {
  dag: "decommission_broker",
  title: "Decommission brokers",
  start: "Empty them",
  danger: true,
  fields: [
    {
      id: "brokers",
      label: "Brokers",
      kind: "text",
      required: true,
      pattern: /^\d+([\s,]+\d+)*$/,
      wrong: "ids of brokers, such as 3, 4",
    },
    {
      id: "replication_factor",
      label: "Replicas of each",
      kind: "number",
      least: 1,
      help: "A smaller number, where the brokers that stay are too few.",
    },
    throttleField,
    { id: "stop_brokers", label: "Stop them in the end", kind: "flag" },
  ],
  type: (values) => values.brokers,
  conf: (values) =>
    given({
      brokers: names(values.brokers).map(Number),
      replication_factor: whole(values.replication_factor),
      throttle: whole(values.throttle),
      stop_brokers: Boolean(values.stop_brokers),
      approve: false,
    }),
  say: (values) => [
    `Every replica on broker ${names(values.brokers).join(", ")} moves to the others.`,
    values.stop_brokers ? "Then their processes are stopped." : "Their processes go on running.",
  ],
};

const recover = {
  dag: "recover_controller",
  title: "Recover the controller",
  start: "Recover",
  danger: true,
  fields: [
    { id: "dry_run", label: "Only say what is wrong", kind: "flag", first: true },
    { id: "restart_brokers", label: "Start brokers that ought to run and do not", kind: "flag", first: true },
  ],
  conf: (values) => ({ dry_run: Boolean(values.dry_run), restart_brokers: Boolean(values.restart_brokers) }),
  say: (values) => [
    values.dry_run
      ? "What is wrong is found out and told; nothing is changed."
      : "A controller that hangs may be fenced, and processes may be ended and started.",
  ],
};

function spark(dag, title, start, sentence) {
  return {
    dag,
    title,
    start,
    fields: [{ id: "topics", label: "Topics", kind: "text", required: true, help: "Separated by commas or spaces." }],
    conf: (values) => ({ topics: names(values.topics) }),
    say: (values) => [`${sentence}: ${names(values.topics).join(", ")}.`],
  };
}

const exporting = {
  dag: "export_segments",
  title: "Export to Parquet",
  start: "Export",
  fields: [
    { id: "topics", label: "Topics", kind: "text", required: true, help: "Separated by commas or spaces." },
    {
      id: "destination",
      label: "Destination",
      kind: "text",
      required: true,
      help: "Directory or URL: s3a://lake/orders",
    },
  ],
  conf: (values) => ({ topics: names(values.topics), destination: values.destination.trim() }),
  say: (values) => [
    `What is new in ${names(values.topics).join(", ")} is written to ${values.destination.trim()}.`,
    "What was exported there before is not exported again.",
  ],
};

const asCode = {
  dag: "topics_as_code",
  title: "Make topics what a file says",
  start: "Plan it",
  fields: [
    {
      id: "file",
      label: "File",
      kind: "text",
      required: true,
      pattern: /^[A-Za-z0-9._/-]+\.ya?ml$/,
      wrong: "a YAML file in the DAG's folder, or in the configured one",
    },
    { id: "delete_unlisted", label: "Delete topics that the file owns and does not list", kind: "flag" },
  ],
  conf: (values) => ({ file: values.file, delete_unlisted: Boolean(values.delete_unlisted), approve: true }),
  say: (values) => [
    `The difference between ${values.file} and the cluster is planned; then a person has to approve it, in Airflow.`,
    values.delete_unlisted ? "The plan may delete topics, five at most." : "No topic is deleted.",
  ],
};

const report = {
  dag: "retention_report",
  title: "Report what topics keep",
  start: "Report",
  fields: [
    { id: "topics", label: "Topics", kind: "text", help: "Separated by commas; all but internal ones where empty." },
  ],
  conf: (values) => ({ topics: names(values.topics) }),
  say: (values) => [`What ${names(values.topics).join(", ") || "every topic"} keeps is reported; nothing is changed.`],
};

// Where a group reads on, as the operator writes it: earliest, latest, 42, +10, -10, a time.
function target(values) {
  if (values.to === "shift") return `${/^[+-]/.test(values.shift) ? "" : "+"}${values.shift.trim()}`;
  return ["offset", "time"].includes(values.to) ? String(values[values.to]).trim() : values.to;
}

const TOLD = {
  earliest: () => "the first record that is there",
  latest: () => "the end: what was written until now is skipped",
  offset: ({ offset }) => `offset ${offset}`,
  shift: ({ shift }) =>
    `${plural(Math.abs(Number(shift)), "record")} ${Number(shift) < 0 ? "before" : "after"} where it is`,
  time: ({ time }) => `the first record of ${time} or later`,
};

const resetOffsets = {
  dag: "reset_offsets",
  title: "Reset offsets",
  start: ({ approve }) => (approve ? "Plan them" : "Set them"),
  danger: ({ approve }) => !approve,
  fields: [
    {
      id: "to",
      label: "Read on from",
      kind: "choice",
      options: [
        ["earliest", "the earliest record"],
        ["latest", "the end"],
        ["time", "a time"],
        ["offset", "an offset"],
        ["shift", "so many records further or back"],
      ],
    },
    {
      id: "time",
      label: "Time",
      kind: "text",
      required: true,
      when: ({ to }) => to === "time",
      pattern: /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?$/,
      wrong: "a time such as 2026-01-31T12:00:00",
      help: "2026-01-31T12:00:00, in UTC where no zone is named.",
    },
    { id: "offset", label: "Offset", kind: "number", required: true, when: ({ to }) => to === "offset" },
    {
      id: "shift",
      label: "Records",
      kind: "text",
      required: true,
      when: ({ to }) => to === "shift",
      pattern: /^[+-]?[1-9]\d{0,17}$/,
      wrong: "a whole number: 100 is further, -100 is back",
      help: "100 skips a hundred in each partition, -100 goes back.",
    },
    {
      id: "topics",
      label: "Topics",
      kind: "text",
      help: "Separated by commas; those that the group committed offsets for where empty.",
    },
    { id: "approve", label: "Show every offset, and wait for an approval", kind: "flag", first: true },
  ],
  check: ({ group, members }) =>
    members ? `${group} has ${plural(members, "member")}, and only they may commit: stop them first.` : "",
  conf: (values) => ({
    group: values.group,
    to: target(values),
    topics: names(values.topics),
    approve: Boolean(values.approve),
  }),
  say: (values) => [
    `Group ${values.group} reads each partition on from ${TOLD[values.to](values)}.`,
    `Topics: ${names(values.topics).join(", ") || "all that it has committed offsets for"}.`,
    values.approve
      ? "Every new offset is planned first; then a person has to approve it, in Airflow."
      : "The offsets are set at once.",
  ],
};

const electLeaders = {
  dag: "elect_leaders",
  title: "Elect preferred leaders",
  start: "Elect them",
  fields: [],
  conf: (values) => ({ topics: values.topics ?? [] }),
  say: (values) => [
    `The first replica of each partition ${values.topics ? `of ${values.topics.join(", ")} ` : ""}leads it again.`,
    `Led by another one now: ${plural(values.astray, "partition")}.`,
  ],
};

const electUnclean = {
  dag: "elect_leaders",
  title: "Elect leaders that are not in sync",
  start: "Elect them",
  danger: true,
  fields: [],
  type: (values) => values.topic,
  conf: (values) => ({ topics: [values.topic], unclean: true }),
  say: (values) => [
    `${plural(values.offline, "partition")} of ${values.topic} that nobody leads: any replica that is alive leads now.`,
    "Records that only the lost replicas have are lost for good. Start their brokers instead, where that can be done.",
  ],
};

const cancelReassignment = {
  dag: "cancel_reassignment",
  title: "Cancel another tool's moves",
  start: "Cancel the moves",
  danger: true,
  fields: [{ id: "remove_throttles", label: "Remove the throttles of these moves, too", kind: "flag", first: true }],
  conf: (values) => ({ topics: [], remove_throttles: Boolean(values.remove_throttles), approve: false }),
  say: (values) => [
    `What moves now (${plural(values.moves, "partition")}) goes back to the replicas of before; what is done stays.`,
    "A partition that nobody could lead then goes on moving.",
  ],
};

export const ACTIONS = {
  create_topic: createTopic,
  alter_topic: alterTopic,
  expand_topic: expandTopic,
  delete_topic: deleteTopic,
  reassign_replicas: reassign,
  cancel_reassignment: cancelReassignment,
  decommission_broker: decommission,
  elect_leaders: electLeaders,
  elect_unclean: electUnclean,
  reset_offsets: resetOffsets,
  recover_controller: recover,
  topics_as_code: asCode,
  retention_report: report,
  export_segments: exporting,
  compact_segments: spark("compact_segments", "Compact", "Compact", "A Spark job compacts the closed segments of"),
  audit_replicas: spark(
    "audit_replicas",
    "Audit",
    "Audit",
    "A Spark job reads every replica and compares them; nothing is changed, of",
  ),
};
