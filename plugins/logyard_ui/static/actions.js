// The actions that a user may start: the DAG, the form, the run's configuration that is sent, and the sentences to
// confirm. Pure; `action_dialog.js` renders them.
//
// A spec: {dag, title, start, fields (see `forms.js`), conf(values), say(values) → sentences, check(values) → what is
// wrong with the whole form, danger, type(values) → a word to type}. `title`, `start` and `danger` may be functions of
// values.

import { brokersNamed, bytes, number, plural } from "./format.js";
import { given, names, throttleField, topicsField, whole } from "./forms.js";
import { addAcl, grantAccess, removeAcl, revokeAccess } from "./acl_actions.js";
import { alterBrokerSettings } from "./broker_actions.js";
import { removeQuota, setQuota } from "./quota_actions.js";
import { copyRecords, sendRecord } from "./record_actions.js";
import { alterTopic, createTopic, deleteTopic, emptyTopic, expandTopic } from "./topic_actions.js";
import { changePassword, createUser, deleteUser } from "./user_actions.js";

const reassign = {
  dag: "reassign_replicas",
  title: "Move replicas",
  start: "Move them",
  fields: [], // the goals and the throttle are those of the plan that is shown
  conf: (values) => given({ ...values.goals, throttle: whole(values.throttle), approve: false }),
  say: (values) =>
    [
      `${plural(values.plan.partitions_total, "partition")} change, ${bytes(values.plan.bytes_moved)} are copied.`,
      duration(values),
      values.exact
        ? "Exactly the plan that was shown is executed."
        : "The plan was too long to be shown completely: the DAG plans again, with the same goals.",
    ].filter(Boolean),
};

function duration({ plan, throttle }) {
  const rate = whole(throttle);
  if (!rate) return throttle === "" ? "Without a throttle here, the connection's throttle is used, or none." : "";
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
      suggest: "brokers",
      several: true,
      required: true,
      pattern: /^\d+([\s,]+\d+)*$/,
      wrong: "ids of brokers, such as 3, 4",
    },
    {
      id: "replication_factor",
      label: "Replicas of each",
      kind: "number",
      least: 1,
      help: "A smaller number, where too few brokers remain.",
    },
    throttleField,
    { id: "stop_brokers", label: "Stop them at the end", kind: "flag" },
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
    `All replicas on broker ${names(values.brokers).join(", ")} move to the other brokers.`,
    values.stop_brokers ? "Then their processes are stopped." : "Their processes keep running.",
  ],
};

// `brokers`: those that are missing, where that is why somebody looks.
const recover = {
  dag: "recover_controller",
  title: ({ brokers }) => (brokers?.length ? `Start ${brokersNamed(brokers)}` : "Recover the controller"),
  start: ({ brokers, dry_run }) =>
    dry_run ? "Only report" : brokers?.length ? `Start ${brokersNamed(brokers)}` : "Recover",
  danger: ({ dry_run }) => !dry_run,
  fields: [
    { id: "dry_run", label: "Only report what is wrong", kind: "flag", first: true },
    { id: "restart_brokers", label: "Start brokers that should run and do not", kind: "flag", first: true },
  ],
  conf: (values) => ({ dry_run: Boolean(values.dry_run), restart_brokers: Boolean(values.restart_brokers) }),
  say: (values) => (values.dry_run ? ["The run reports what is wrong, and changes nothing."] : steps(values)),
};

function steps({ brokers, restart_brokers }) {
  const missing = brokers?.length ? brokersNamed(brokers) : "a broker that should run and does not";
  return [
    restart_brokers
      ? `The run starts ${missing}, by the start command that Airflow's configuration or the connection has.`
      : "No broker is started; the run names those that are missing.",
    restart_brokers &&
      "A broker is started if its own host says that it is gone, or several signs have said so for 45 s.",
    restart_brokers && "One that hangs is ended first.",
    "A controller that hangs is fenced, and another one is elected.",
    "The run ends when a controller answers, partitions are led, and what was started is in sync again.",
  ].filter(Boolean);
}

function spark(dag, title, start, sentence) {
  return {
    dag,
    title,
    start,
    fields: [{ ...topicsField, required: true }],
    conf: (values) => ({ topics: names(values.topics) }),
    say: (values) => [`${sentence}: ${names(values.topics).join(", ")}.`],
  };
}

const exporting = {
  dag: "export_segments",
  title: "Export to Parquet",
  start: "Export",
  fields: [
    { ...topicsField, required: true },
    {
      id: "destination",
      label: "Destination",
      kind: "text",
      required: true,
      help: "A directory that driver and executors share: /lake/orders",
    },
  ],
  conf: (values) => ({ topics: names(values.topics), destination: values.destination.trim() }),
  say: (values) => [
    `New records of ${names(values.topics).join(", ")} are written to ${values.destination.trim()}.`,
    "Records that were exported there before are not exported again.",
  ],
};

const asCode = {
  dag: "topics_as_code",
  title: "Make topics match a file",
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
    `The changes that ${values.file} asks for are planned; then a person must approve them in Airflow.`,
    values.delete_unlisted ? "The plan may delete up to five topics." : "No topic is deleted.",
  ],
};

const report = {
  dag: "retention_report",
  title: "Report what topics retain",
  start: "Report",
  fields: [{ ...topicsField, help: "Separated by commas; empty: all but internal ones." }],
  conf: (values) => ({ topics: names(values.topics) }),
  say: (values) => [
    `The run reports what ${names(values.topics).join(", ") || "every topic"} retains, and changes nothing.`,
  ],
};

// The new position of a group in the operator's notation: earliest, latest, 42, +10, -10, a time.
function target(values) {
  if (values.to === "shift") return `${/^[+-]/.test(values.shift) ? "" : "+"}${values.shift.trim()}`;
  return ["offset", "time"].includes(values.to) ? String(values[values.to]).trim() : values.to;
}

const TARGETS = {
  earliest: () => "the earliest record",
  latest: () => "the end: all records written so far are skipped",
  offset: ({ offset }) => `offset ${offset}`,
  shift: ({ shift }) =>
    `${plural(Math.abs(Number(shift)), "record")} ${Number(shift) < 0 ? "before" : "after"} its current position`,
  time: ({ time }) => `the first record at ${time} or later`,
};

const resetOffsets = {
  dag: "reset_offsets",
  title: "Reset offsets",
  start: ({ approve }) => (approve ? "Plan them" : "Set them"),
  danger: ({ approve }) => !approve,
  fields: [
    {
      id: "to",
      label: "Continue from",
      kind: "choice",
      options: [
        ["earliest", "the earliest record"],
        ["latest", "the end"],
        ["time", "a time"],
        ["offset", "an offset"],
        ["shift", "a number of records forward or back"],
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
      help: "2026-01-31T12:00:00, in UTC where no zone is given.",
    },
    { id: "offset", label: "Offset", kind: "number", required: true, when: ({ to }) => to === "offset" },
    {
      id: "shift",
      label: "Records",
      kind: "text",
      required: true,
      when: ({ to }) => to === "shift",
      pattern: /^[+-]?[1-9]\d{0,17}$/,
      wrong: "a whole number: 100 is forward, -100 is back",
      help: "100 skips a hundred records in each partition, -100 goes back as many.",
    },
    {
      ...topicsField,
      help: "Separated by commas; empty: those that the group has committed offsets for.",
    },
    { id: "approve", label: "Plan the offsets first, and wait for an approval", kind: "flag", first: true },
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
    `Group ${values.group} continues in each partition from ${TARGETS[values.to](values)}.`,
    `Topics: ${names(values.topics).join(", ") || "all that it has committed offsets for"}.`,
    values.approve
      ? "Every new offset is planned first; then a person must approve them in Airflow."
      : "The offsets are set at once.",
  ],
};

const deleteGroup = {
  dag: "delete_groups",
  title: "Delete a group",
  start: "Delete it",
  danger: true,
  fields: [],
  type: (values) => values.group,
  conf: (values) => ({ groups: [values.group] }),
  say: (values) => [
    `Group ${values.group} is deleted, with its committed offsets of ${plural(values.partitions, "partition")}.`,
    "Consumers that use the name later begin where their auto.offset.reset says.",
    values.members
      ? `It has ${plural(values.members, "member")} now, and the run fails while it has any: stop them first.`
      : "The run fails if a consumer has joined it by then.",
  ],
};

const electLeaders = {
  dag: "elect_leaders",
  title: "Elect preferred leaders",
  start: "Elect them",
  fields: [],
  conf: (values) => ({ topics: values.topics ?? [] }),
  say: (values) => [
    `The first replica of each partition ${values.topics ? `of ${values.topics.join(", ")} ` : ""}becomes its leader.`,
    `Led by another replica now: ${plural(values.notPreferred, "partition")}.`,
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
    `${plural(values.offline, "partition")} of ${values.topic} without a leader: any live replica becomes the leader.`,
    "Records that only the other replicas have are lost for good. If you can, start their brokers instead.",
  ],
};

const cancelReassignment = {
  dag: "cancel_reassignment",
  title: "Cancel another tool's moves",
  start: "Cancel the moves",
  danger: true,
  fields: [{ id: "remove_throttles", label: "Also remove the throttles of these moves", kind: "flag", first: true }],
  conf: (values) => ({ topics: [], remove_throttles: Boolean(values.remove_throttles), approve: false }),
  say: (values) => [
    `The moves of ${plural(values.moves, "partition")} are cancelled and go back; finished moves stay.`,
    "A move is not cancelled where its partition would have no leader.",
  ],
};

const abortHanging = {
  dag: "abort_hanging_transactions",
  title: "Abort hanging transactions",
  start: "Find them",
  danger: true,
  fields: [],
  conf: (values) => ({ topics: values.topics, approve: true }),
  say: (values) => [
    `${plural(values.hanging, "transaction")} of ${values.topics.join(", ")} will not be ended by a coordinator.`,
    "The run finds them again, shows each of them, and waits for an approval before it aborts them.",
  ],
};

export const ACTIONS = {
  create_topic: createTopic,
  alter_topic: alterTopic,
  expand_topic: expandTopic,
  empty_topic: emptyTopic,
  delete_topic: deleteTopic,
  reassign_replicas: reassign,
  cancel_reassignment: cancelReassignment,
  decommission_broker: decommission,
  elect_leaders: electLeaders,
  elect_unclean: electUnclean,
  reset_offsets: resetOffsets,
  delete_group: deleteGroup,
  abort_hanging_transactions: abortHanging,
  send_record: sendRecord,
  copy_records: copyRecords,
  alter_broker_settings: alterBrokerSettings,
  grant_access: grantAccess,
  revoke_access: revokeAccess,
  add_acl: addAcl,
  remove_acl: removeAcl,
  create_user: createUser,
  change_password: changePassword,
  delete_user: deleteUser,
  set_quota: setQuota,
  remove_quota: removeQuota,
  recover_controller: recover,
  topics_as_code: asCode,
  retention_report: report,
  export_segments: exporting,
  compact_segments: spark("compact_segments", "Compact", "Compact", "A Spark job compacts the closed segments of"),
  audit_replicas: spark(
    "audit_replicas",
    "Audit",
    "Audit",
    "A Spark job reads and compares all replicas, and changes nothing, of",
  ),
};
