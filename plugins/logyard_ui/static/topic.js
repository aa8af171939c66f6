// One topic: its partitions with leader, replicas, ISR, offsets and sizes; its settings; the groups that read it; the
// transactions that are open on it; who may do what on it.

import { useCluster, useRoute } from "./cluster_context.js";
import { bytes, number, plural } from "./format.js";
import { Fragment, UI, h, useMemo } from "./airflow_ui.js";
import { ActionButton, PlaceButton } from "./action_button.js";
import { Empty, Facts, Head, Loaded, MissingParts, Replicas, Section, State } from "./components.js";
import { History } from "./history.js";
import { LagChoice, isLatest, lagOf, sumOf } from "./lag.js";
import { Maintenance } from "./maintenance.js";
import { Operations } from "./operations.js";
import { limits as said, spoken } from "./security_words.js";
import { rowLink } from "./page_address.js";
import { emptying } from "./topic_actions.js";
import { editable, lines } from "./config_lines.js";
import { Settings } from "./settings.js";
import { Table } from "./table.js";
import { Transactions } from "./transactions.js";

const { Code, Flex, Text } = UI;

export function Topic() {
  const { place } = useCluster();
  const name = place.get("topic");
  const answer = useRoute("topic", { name });
  return h(
    Flex,
    { direction: "column", gap: "5" },
    h(
      Head,
      { list: "Topics", to: place.to({ view: "topics" }), name },
      answer.data && !answer.problem && h(Actions, { topic: answer.data }),
    ),
    h(Loaded, { answer, what: `topic ${name}`, rows: 8 }, (topic) => h(Content, { topic })),
  );
}

function Actions({ topic }) {
  const { place, actions } = useCluster();
  const { name } = topic;
  const partitions = topic.partitions_total ?? topic.partitions.length;
  const changed = editable(topic.configs ?? []);
  const notPreferred = topic.partitions.filter(isNotPreferred).length;
  const offline = topic.partitions.filter((row) => row.offline).length;
  const hanging = (topic.transactions ?? []).filter((row) => row.hangs).length;
  const { values: whole, problem: full } = emptying(topic);
  return h(
    Fragment,
    null,
    actions.records && h(PlaceButton, { to: place.to({ view: "records", topic: name }) }, "Records"),
    h(ActionButton, { action: "send_record", values: { topic: name, partitions }, plain: true }, "Send a record"),
    hanging > 0 &&
      h(
        ActionButton,
        { action: "abort_hanging_transactions", values: { topics: [name], hanging }, danger: true },
        "Abort hanging transactions",
      ),
    offline > 0 &&
      h(
        ActionButton,
        { action: "elect_unclean", values: { topic: name, offline }, danger: true },
        "Elect unclean leaders",
      ),
    notPreferred > 0 &&
      h(
        ActionButton,
        { action: "elect_leaders", values: { topics: [name], notPreferred }, plain: true },
        "Elect preferred leaders",
      ),
    h(
      ActionButton,
      {
        action: "alter_topic",
        values: { topic: name, before: changed, configs: lines(changed) },
        plain: true,
        disabled: !topic.configs,
      },
      "Settings",
    ),
    h(
      ActionButton,
      { action: "expand_topic", values: { topic: name, partitions, expand_to: String(partitions + 1) }, plain: true },
      "Add partitions",
    ),
    h(
      ActionButton,
      { action: "reassign_replicas", to: place.to({ view: "reassignments", topics: name }), plain: true },
      "Move replicas",
    ),
    h(ActionButton, { action: "compact_segments", values: { topics: name }, plain: true }, "Compact"),
    h(ActionButton, { action: "export_segments", values: { topics: name }, plain: true }, "Export"),
    h(ActionButton, { action: "audit_replicas", values: { topics: name }, plain: true }, "Audit"),
    h(
      ActionButton,
      {
        action: "create_topic",
        values: {
          partitions: String(partitions),
          replication_factor: String(topic.replication_factor),
          configs: lines(changed),
        },
        plain: true,
        disabled: !topic.configs,
      },
      "Create one like it",
    ),
    h(
      ActionButton,
      { action: "empty_topic", values: whole, danger: true, disabled: full !== "", title: full || undefined },
      "Empty",
    ),
    h(
      ActionButton,
      { action: "delete_topic", values: { topic: name, records: topic.records, bytes: topic.bytes }, danger: true },
      "Delete",
    ),
  );
}

function isNotPreferred({ leader, preferred }) {
  return leader >= 0 && leader !== preferred;
}

function Content({ topic }) {
  const { place } = useCluster();
  const under = topic.partitions.filter((partition) => partition.under_replicated).length;
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(Facts, {
      facts: [
        ["Partitions", number(topic.partitions_total ?? topic.partitions.length)],
        ["Replicas each", number(topic.replication_factor)],
        ["Under-replicated", number(under)],
        ["Records", number(topic.records)],
        ["Bytes, all replicas", bytes(topic.bytes)],
        topic.topic_id && ["Id", h(Code, { size: "sm" }, topic.topic_id)],
        topic.internal && ["Internal", "yes"],
      ],
    }),
    h(MissingParts, { data: topic }),
    h(Partitions, { topic }),
    h(Groups, { topic }),
    topic.transactions?.length > 0 && h(Transactions, { rows: topic.transactions }),
    h(History, { kind: "topic", name: topic.name }),
    h(Maintenance, { topic: topic.name }),
    h(Operations, { topic: topic.name }),
    h(Rights, { topic }),
    h(
      Section,
      {
        title: "Settings",
        aside: h(PlaceButton, { to: place.to({ view: "compare", of: "topics", name: topic.name }) }, "Compare"),
      },
      topic.configs
        ? h(Settings, { configs: topic.configs, name: "Settings of the topic" })
        : h(Text, { color: "fg.muted" }, "Not read yet."),
    ),
  );
}

const count = (id, label) => ({
  id,
  label,
  end: true,
  width: "8.2rem",
  value: (row) => row[id],
  cell: (row) => number(row[id]),
});

const PARTITION_COLUMNS = [
  {
    id: "partition",
    label: "Partition",
    end: true,
    width: "7.5rem",
    value: (row) => row.partition,
    cell: (row) => row.partition,
  },
  {
    id: "leader",
    label: "Leader",
    end: true,
    width: "6.5rem",
    value: (row) => row.leader,
    cell: (row) =>
      h(
        "span",
        {
          "data-bad": row.offline ? "" : undefined,
          title: row.leader === row.preferred ? undefined : `preferred: ${row.preferred}`,
        },
        row.leader < 0 ? "none" : row.leader,
        row.leader >= 0 && row.leader !== row.preferred && "*",
      ),
  },
  {
    id: "epoch",
    label: "Epoch",
    end: true,
    width: "5.5rem",
    value: (row) => row.leader_epoch,
    cell: (row) => row.leader_epoch,
  },
  {
    id: "replicas",
    label: "Replicas",
    width: "8.5rem",
    value: (row) => row.replicas.join(),
    cell: (row) => h(Replicas, { ...row, isr: row.replicas }),
  },
  {
    id: "isr",
    label: "In sync",
    width: "8.5rem",
    value: (row) => row.isr.length,
    cell: (row) => h("span", { "data-bad": row.under_replicated ? "" : undefined }, row.isr.join(", ") || "none"),
  },
  count("start", "Start"),
  count("end", "End"),
  count("records", "Records"),
  {
    id: "size",
    label: "Bytes at the leader",
    width: "13rem",
    end: true,
    value: (row) => row.sizes?.[row.leader],
    cell: (row) => h("span", { title: sizes(row) }, bytes(row.sizes?.[row.leader])),
  },
  { id: "behind", label: "Behind", end: true, width: "6.5rem", value: behind, cell: (row) => number(behind(row)) },
  { id: "moving", label: "Moving", width: "9rem", cell: moving },
];

function behind(row) {
  const found = Object.values(row.behind ?? {});
  return found.length ? Math.max(...found) : null;
}

function sizes(row) {
  return (
    Object.entries(row.sizes ?? {})
      .map(([broker, size]) => `broker ${broker}: ${bytes(size)}`)
      .join(", ") || undefined
  );
}

function moving(row) {
  if (!row.adding?.length && !row.removing?.length) return "";
  return h(
    "span",
    null,
    [row.adding.length > 0 && `+${row.adding.join(" +")}`, row.removing.length > 0 && `−${row.removing.join(" −")}`]
      .filter(Boolean)
      .join("  "),
  );
}

function Partitions({ topic }) {
  const { place } = useCluster();
  const wanted = topic.partitions.some((row) => row.adding?.length || row.removing?.length);
  const columns = useMemo(() => PARTITION_COLUMNS.filter((column) => column.id !== "moving" || wanted), [wanted]);
  const notPreferred = topic.partitions.some(isNotPreferred);
  return h(
    Section,
    { title: "Partitions" },
    h(Table, {
      name: "Partitions",
      columns,
      rows: topic.partitions,
      rowKey: (row) => row.partition,
      order: place.get("sort") || "partition",
      onOrder: (sort) => place.stay({ sort }),
    }),
    notPreferred && h(Text, { color: "fg.muted", fontSize: "xs", marginTop: "1" }, "* not led by the first replica"),
    topic.partitions_total > topic.partitions.length &&
      h(
        Text,
        { color: "fg.muted", fontSize: "sm" },
        `The first ${number(topic.partitions.length)} of ${plural(topic.partitions_total, "partition")}.`,
      ),
  );
}

function Groups({ topic }) {
  const { place } = useCluster();
  const columns = useMemo(
    () => [
      {
        id: "group",
        label: "Group",
        cell: (row) => rowLink(place.to({ view: "group", group: row.group }), row.group),
      },
      { id: "state", label: "State", width: "10rem", cell: (row) => h(State, { state: row.state }) },
      { id: "members", label: "Members", end: true, width: "7rem", cell: (row) => number(row.members) },
      { id: "lag", label: "Lag", end: true, width: "8rem", cell: (row) => number(lagOf(row, isLatest(place))) },
      { id: "most", label: "Largest lag", width: "14rem", cell: (row) => furthest(row.partitions) },
    ],
    [place],
  );
  return h(
    Section,
    { title: "Groups" },
    !topic.groups
      ? h(Text, { color: "fg.muted" }, "Not read yet.")
      : topic.groups.length === 0
        ? h(Empty, { title: "No group has committed an offset here." })
        : h(
            Fragment,
            null,
            h(Table, {
              name: "Groups that read the topic",
              columns,
              rows: topic.groups,
              rowKey: (row) => row.group,
              cards: true,
            }),
            h(LagChoice, { uncommitted: sumOf(topic.groups, "uncommitted"), unread: sumOf(topic.groups, "unread") }),
          ),
  );
}

const ACL_COLUMNS = [
  {
    id: "permission",
    label: "May",
    width: "6rem",
    cell: (row) => (row.permission === "DENY" ? h("span", { "data-bad": "" }, "may not") : "may"),
  },
  { id: "principal", label: "Who", cell: (row) => row.principal },
  { id: "operations", label: "Do", width: "14rem", cell: (row) => row.operations.map(spoken).join(", ") },
  { id: "on", label: "On", width: "16rem", cell: on },
  { id: "host", label: "From", width: "10rem", cell: (row) => (row.host === "*" ? "anywhere" : row.host) },
];

// One row for all that an ACL's principal may do on the same topics from the same host.
function together(acls) {
  const rows = new Map();
  for (const { operation, ...rest } of acls) {
    const key = JSON.stringify(rest);
    if (!rows.has(key)) rows.set(key, { ...rest, key, operations: [] });
    rows.get(key).operations.push(operation);
  }
  return [...rows.values()];
}

function on(row) {
  if (row.pattern === "PREFIXED") return `topics that begin with ${row.name}`;
  return row.name === "*" ? "all topics" : "this topic";
}

function Rights({ topic }) {
  const { rights } = topic;
  if (!rights) {
    return h(Section, { title: "Rights" }, h(Text, { color: "fg.muted" }, topic.problems?.rights ?? "Not read yet."));
  }
  if (!rights.authorizer) {
    const open = "Everybody may do everything: the cluster has no authorizer.";
    return h(Section, { title: "Rights" }, h(Text, { color: "fg.muted" }, open));
  }
  const more = rights.acls_total - rights.acls.length;
  const limits = rights.quotas.map(({ user, limits }) => {
    return `${user || "other users"}: ${said(limits)}`;
  });
  return h(
    Section,
    { title: "Rights" },
    rights.acls.length === 0
      ? h(Empty, { title: "No ACL counts for this topic: only super users may use it, unless the brokers allow all." })
      : h(Table, {
          name: "Rights",
          columns: ACL_COLUMNS,
          rows: together(rights.acls),
          rowKey: (row) => row.key,
          cards: true,
        }),
    more > 0 && h(Text, { color: "fg.muted", fontSize: "xs" }, `${number(more)} more ACLs are not shown.`),
    limits.length > 0 &&
      h(Text, { color: "fg.muted", fontSize: "xs", marginTop: "1" }, `Quotas of users: ${limits.join("; ")}.`),
  );
}

function furthest(partitions) {
  const [partition, entry] = Object.entries(partitions ?? {}).reduce(
    (most, next) => (next[1].lag > (most[1]?.lag ?? 0) ? next : most),
    [null, null],
  );
  return entry ? `partition ${partition}: ${number(entry.lag)}` : "–";
}
