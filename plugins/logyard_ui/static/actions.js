// What a reader may start: which DAG it is, what it asks, what is sent as the run's configuration, and the sentences
// that are confirmed. Pure; `dialog.js` draws it.
//
// A spec: {dag, title, start, fields, conf(values), say(values) → sentences, check(values) → what is wrong as a whole,
// danger, type(values) → a word to type}.
// A field: {id, label, kind: text | number | flag | lines | choice, help, required, pattern, least, options}.

import { bytes, number, plural } from "./format.js";
import { difference, parse } from "./lines.js";

const TOPIC = /^[a-zA-Z0-9._-]{1,249}$/;

const topicField = {
  id: "topic",
  label: "Name",
  kind: "text",
  required: true,
  pattern: TOPIC,
  wrong: "1 to 249 letters, digits, dots, dashes and underscores",
};
const throttleField = {
  id: "throttle",
  label: "Throttle, bytes per second",
  kind: "number",
  least: 1,
  help: "On each broker; empty: the connection's, or none.",
};

function whole(text) {
  return text === "" || text === undefined || text === null ? undefined : Number(text);
}

function names(text) {
  return (text ?? "").split(/[\s,]+/).filter(Boolean);
}

// Without what was left empty.
function given(conf) {
  return Object.fromEntries(Object.entries(conf).filter(([, value]) => value !== undefined));
}

function listed(settings) {
  return Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
}

const createTopic = {
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
    { id: "configs", label: "Settings", kind: "lines", help: "One a line: cleanup.policy=compact" },
  ],
  check: (values) => parse(values.configs ?? "").problem,
  conf: (values) => {
    const { settings } = parse(values.configs ?? "");
    return given({
      topic: values.topic,
      partitions: whole(values.partitions),
      replication_factor: whole(values.replication_factor),
      configs: Object.keys(settings).length ? settings : undefined,
      if_exists: "fail",
    });
  },
  say: (values) => [
    `Topic ${values.topic} is made.`,
    `Partitions: ${values.partitions || "the broker's default"}`,
    `Replicas of each: ${values.replication_factor || "the broker's default"}`,
    ...listed(parse(values.configs ?? "").settings),
  ],
};

const alterTopic = {
  dag: "topic_lifecycle",
  title: "Change settings",
  start: "Change them",
  fields: [
    {
      id: "configs",
      label: "Settings of the topic",
      kind: "lines",
      rows: 8,
      help: "One a line. A line that is taken away is unset: the default holds again.",
    },
  ],
  check: (values) => {
    const { settings, problem } = parse(values.configs ?? "");
    return problem || (Object.keys(difference(values.before, settings)).length === 0 ? "Nothing is changed yet." : "");
  },
  conf: (values) => ({ topic: values.topic, alter: difference(values.before, parse(values.configs).settings) }),
  say: (values) => [
    `Settings of topic ${values.topic} change:`,
    ...Object.entries(difference(values.before, parse(values.configs).settings)).map(
      ([name, value]) => `${name}: ${values.before[name] ?? "default"} → ${value ?? "default"}`,
    ),
  ],
};

const expandTopic = {
  dag: "topic_lifecycle",
  title: "Add partitions",
  start: "Add them",
  fields: [{ id: "expand_to", label: "Partitions in all", kind: "number", least: 1, required: true }],
  check: (values) =>
    Number(values.expand_to) > values.partitions
      ? ""
      : `There are ${values.partitions} already, and they never get fewer.`,
  conf: (values) => ({ topic: values.topic, expand_to: whole(values.expand_to) }),
  say: (values) => [
    `Topic ${values.topic} gets ${values.expand_to} partitions instead of ${values.partitions}; this cannot be undone.`,
    "Records with keys go to other partitions from then on.",
  ],
};

const deleteTopic = {
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
    `Topic ${values.topic} is deleted, with all its records. Nothing brings it back.`,
    `Records: ${number(values.records)}; bytes on all brokers: ${bytes(values.bytes)}.`,
  ],
};

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

export const ACTIONS = {
  create_topic: createTopic,
  alter_topic: alterTopic,
  expand_topic: expandTopic,
  delete_topic: deleteTopic,
  reassign_replicas: reassign,
  decommission_broker: decommission,
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

// What a form starts with.
export function starting(spec, values) {
  const first = spec.fields.map((field) => [field.id, field.kind === "flag" ? Boolean(field.first) : ""]);
  return { ...Object.fromEntries(first), ...values };
}

// field id → what is wrong with it; nothing where all is well.
export function wrong(spec, values) {
  const found = {};
  for (const field of spec.fields) {
    const value = values[field.id];
    const text = typeof value === "string" ? value.trim() : value;
    if (field.required && (text === "" || text === undefined)) found[field.id] = "This is needed.";
    else if (
      field.kind === "number" &&
      text !== "" &&
      text !== undefined &&
      !(Number.isInteger(Number(text)) && Number(text) >= (field.least ?? 0))
    )
      found[field.id] = `A whole number, ${field.least ?? 0} or more.`;
    else if (field.pattern && text && !field.pattern.test(text)) found[field.id] = field.wrong;
  }
  return found;
}
