// What the findings mean: why each kind matters, how an item is told, and what mends it. Pure; `findings.js` renders
// them, and `findings/rules.py` on the server finds them.
//
// A kind: {title, why, told(item) → text, mend(item, cluster), all(items, cluster), serious}. `cluster`: {brokers}.
// `mend`, and `all` for several items, give {label, action, values} for a dialog, or {label, action, place} for a view
// that prepares the action; null where there is nothing to start.

import { bytes, number, plural, seconds, time } from "./format.js";
import { lines } from "./config_lines.js";

// Topics that one link names.
const MANY = 100;

function replan(label, goals) {
  return { label, action: "reassign_replicas", place: { view: "reassignments", preview: 1, ...goals } };
}

// The topic's settings in the dialog that changes them, with these changes already made; null unsets one.
function settings(label, { topic, values }, changes) {
  const after = { ...values.overrides, ...changes };
  for (const [name, value] of Object.entries(changes)) if (value === null) delete after[name];
  return { label, action: "alter_topic", values: { topic, before: values.overrides, configs: lines(after) } };
}

function remove({ topic, values }) {
  const { records, bytes: size } = values;
  return { label: "Delete", action: "delete_topic", values: { topic, records, bytes: size }, danger: true };
}

function restart({ values }) {
  if (!values.dead?.length) return null;
  const named = values.dead.length > 1 ? "brokers" : "broker";
  return {
    label: `Start ${named} ${values.dead.join(", ")}`,
    action: "recover_controller",
    values: { brokers: values.dead, dry_run: false },
  };
}

function raise(topics, brokers) {
  const factor = Math.min(3, brokers.length);
  if (factor < 2) return null;
  return replan(`Plan ${factor} replicas`, { topics: topics.slice(0, MANY).join(", "), rf: factor });
}

export const KINDS = {
  offline: {
    title: "Partitions without a leader",
    why: "Nothing can be written to them or read from them until one of their replicas is back.",
    serious: true,
    told: ({ number: count }) => plural(count, "partition"),
    mend: () => ({ label: "Recover", action: "recover_controller", values: {} }),
  },
  under_replicated: {
    title: "Under-replicated partitions",
    why: "Fewer copies are up to date than were asked for: the next broker that fails may stop them, or cost records.",
    serious: true,
    told: ({ number: count, values }) =>
      `${plural(count, "partition")}, out of sync: ${values.out_of_sync.map((id) => `broker ${id}`).join(", ")}`,
    mend: restart,
  },
  hanging: {
    title: "Hanging transactions",
    why: "No coordinator will end them: readers of committed records wait behind them, and compaction stops there.",
    serious: true,
    told: ({ number: count, values }) => `${plural(count, "transaction")}, last written at ${time(values.since_ms)}`,
    mend: ({ topic, number: count }) => abort([topic], count),
    all: (items) =>
      abort(
        items.map((item) => item.topic),
        items.reduce((sum, item) => sum + item.number, 0),
      ),
  },
  disk_full: {
    title: "Disks that are nearly full",
    why: "A broker that cannot write takes the directory offline: its replicas there are gone until there is room.",
    serious: true,
    told: ({ number: share, values }) =>
      `${values.path}: ${number(share)} % used, ${bytes(values.free)} free` +
      (typeof values.full_in_s === "number" ? `, full in ${seconds(values.full_in_s)} at the last week's rate` : ""),
    mend: () => replan("Plan", { disk: 1 }),
  },
  min_insync: {
    title: "min.insync.replicas as large as the number of replicas",
    why: "With one broker down, or while one restarts, nothing can be written with acks=all.",
    told: ({ values }) => `${values.min_insync} of ${plural(values.replication_factor, "replica")}`,
    mend: (item) =>
      item.values.replication_factor > 1
        ? settings("Lower it", item, { "min.insync.replicas": String(item.values.replication_factor - 1) })
        : null,
  },
  replication_factor_1: {
    title: "Topics with one replica",
    why: "If its broker is down the topic is too, and if the disk is lost its records are.",
    told: ({ number: count }) => plural(count, "partition"),
    mend: ({ topic }, { brokers }) => raise([topic], brokers),
    all: (items, { brokers }) =>
      raise(
        items.map((item) => item.topic),
        brokers,
      ),
  },
  leader_skew: {
    title: "Brokers that lead too many partitions",
    why: "All writing and most reading goes through leaders: this broker is busy while others are not.",
    told: ({ number: count, values }) => `leads ${number(count)}, the mean is ${number(values.mean)}`,
    mend: ({ values }) =>
      values.not_preferred > 0
        ? { label: "Elect preferred", action: "elect_leaders", values: { notPreferred: values.not_preferred } }
        : replan("Plan", { balance: 1 }),
  },
  byte_skew: {
    title: "Brokers that hold too many bytes",
    why: "Their disks are full before the others', and moves and restarts take longest there.",
    told: ({ number: size, values }) => `${bytes(size)}, the mean is ${bytes(values.mean)}`,
    mend: () => replan("Plan", { disk: 1 }),
  },
  partition_skew: {
    title: "Topics with one partition much larger than the others",
    why: "One consumer has most of the work. Often one key, or a null key with an old partitioner, has most records.",
    told: ({ number: times, values }) =>
      `partition ${values.partition}: ${bytes(values.bytes)}, ${number(times)} times the mean`,
    mend: ({ topic }) => replan("Plan", { topics: topic, disk: 1 }),
  },
  small_segments: {
    title: "Topics with many small segments",
    why: "Each has three open files, and makes starts, retention and compaction slower.",
    told: ({ number: count, values }) =>
      `about ${number(count)} a partition, ${bytes(values.each)} each${values.by_time ? ", by segment.ms" : ""}`,
    mend: (item) => {
      const name = item.values.by_time ? "segment.ms" : "segment.bytes";
      return settings("Unset it", item, { [name]: null });
    },
  },
  unread: {
    title: "Topics without a reader",
    why: "No group has committed or is assigned them. Programs that read without a group are not known to a cluster.",
    told: ({ values }) => `${plural(values.records, "record")}, ${bytes(values.bytes)}`,
    mend: remove,
  },
  idle: {
    title: "Idle topics",
    why: "Nothing was written for a week or longer, by the records' times. They still take disk space and open files.",
    told: ({ number: days, values }) =>
      `nothing for ${number(days)} days or longer; ${plural(values.records ?? 0, "record")}, ${bytes(values.bytes)}`,
    mend: remove,
  },
};

function abort(topics, hanging) {
  return {
    label: "Abort them",
    action: "abort_hanging_transactions",
    values: { topics: topics.slice(0, MANY), hanging },
    danger: true,
  };
}
