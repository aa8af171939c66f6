// Consumer groups: their state and lag; one group's members and offsets.

import { useCluster, useRoute } from "./cluster_context.js";
import { number, plural } from "./format.js";
import { React, UI, h, useMemo } from "./airflow_ui.js";
import { ActionButton } from "./action_button.js";
import { Empty, Facts, Head, Loaded, MissingParts, Section, State } from "./components.js";
import { History } from "./history.js";
import { LagChoice, isLatest, lagOf, sumOf } from "./lag.js";
import { rowLink } from "./page_address.js";
import { Search, Table } from "./table.js";
import { useDelayedText } from "./delayed_text.js";

const { Flex, Text } = UI;
const GROUPS_MS = 10000;

export function Groups() {
  const answer = useRoute("groups", {}, GROUPS_MS);
  return h(
    Flex,
    { direction: "column", gap: "3", flex: "1", minHeight: "0" },
    h(Loaded, { answer, what: "groups" }, (data) => h(List, { data })),
  );
}

function List({ data }) {
  const { place, conn } = useCluster();
  const latest = isLatest(place);
  const [typed, setTyped] = useDelayedText(place, "q");
  const found = useMemo(
    () => data.groups.filter((row) => row.group.toLowerCase().includes(typed.trim().toLowerCase())),
    [data, typed],
  );
  const columns = useMemo(
    () => [
      {
        id: "group",
        label: "Group",
        value: (row) => row.group,
        cell: (row) => rowLink(place.to({ view: "group", group: row.group }), row.group),
      },
      {
        id: "state",
        label: "State",
        width: "10rem",
        value: (row) => row.state,
        cell: (row) => h(State, { state: row.state }),
      },
      {
        id: "members",
        label: "Members",
        end: true,
        width: "7rem",
        value: (row) => row.members,
        cell: (row) => number(row.members),
      },
      {
        id: "topics",
        label: "Topics",
        value: (row) => row.topics?.length,
        cell: (row) => row.topics?.join(", ") ?? h("span", { "data-quiet": "" }, "not read yet"),
      },
      lagColumn(latest),
      {
        id: "protocol",
        label: "Protocol",
        width: "8rem",
        value: (row) => row.protocol_type,
        cell: (row) => row.protocol_type || "–",
      },
    ],
    [conn, latest],
  );
  return h(
    React.Fragment,
    null,
    h(
      Flex,
      null,
      h(
        Search,
        { label: "Search groups", value: typed, onChange: setTyped },
        h(Text, { color: "fg.muted", fontSize: "sm", role: "status" }, plural(found.length, "group")),
      ),
    ),
    h(LagChoice, { uncommitted: sumOf(data.groups, "uncommitted"), unread: sumOf(data.groups, "unread") }),
    h(MissingParts, { data }),
    data.groups.length === 0
      ? h(Empty, { title: "There is no group." }, "A group appears when a consumer joins one or commits an offset.")
      : h(Table, {
          name: "Groups",
          columns,
          rows: found,
          rowKey: (row) => row.group,
          order: place.get("sort") || "-lag",
          onOrder: (sort) => place.stay({ sort }),
          fill: true,
          cards: true,
          empty: "No group's name matches.",
        }),
    data.old_groups?.length > 0 && h(OldConsumers, { data }),
  );
}

const lagColumn = (latest) => ({
  id: "lag",
  label: "Lag",
  end: true,
  width: "8rem",
  value: (row) => lagOf(row, latest),
  cell: (row) => number(lagOf(row, latest)),
});

const OLD_COLUMNS = [
  { id: "group", label: "Group", cell: (row) => row.group },
  {
    id: "state",
    label: "State",
    width: "8rem",
    cell: (row) => h(State, { state: row.active ? "Stable" : "Empty" }),
  },
  { id: "consumers", label: "Consumers", end: true, width: "7rem", cell: (row) => number(row.consumers.length) },
  { id: "owned", label: "Partitions read", end: true, width: "9rem", cell: (row) => number(row.partitions_owned) },
  { id: "topics", label: "Topics", cell: (row) => row.topics.join(", ") || "–" },
  { id: "lag", label: "Lag", end: true, width: "8rem", cell: (row) => number(row.lag) },
  {
    id: "problems",
    label: "Unreadable",
    width: "7rem",
    cell: (row) => h("span", { title: row.problems.join("\n") || undefined }, row.problems.length || "–"),
  },
];

function OldConsumers({ data }) {
  const left = data.old_groups_total - data.old_groups.length;
  return h(
    Section,
    { title: "Old consumers" },
    h(
      Text,
      { color: "fg.muted", fontSize: "sm", marginBottom: "2" },
      "Groups of the first consumers, which keep members and offsets in ZooKeeper. The command logyard groups migrate",
      " takes their offsets over.",
      left > 0 && ` ${plural(left, "group")} more could not be read in time.`,
    ),
    h(Table, {
      name: "Old consumers",
      columns: OLD_COLUMNS,
      rows: data.old_groups,
      rowKey: (row) => row.group,
      cards: true,
    }),
  );
}

export function Group() {
  const { place } = useCluster();
  const name = place.get("group");
  const answer = useRoute("group", { name });
  return h(
    Flex,
    { direction: "column", gap: "5" },
    h(
      Head,
      { list: "Groups", to: place.to({ view: "groups" }), name },
      answer.data &&
        !answer.problem &&
        h(Actions, { group: answer.data }),
    ),
    h(Loaded, { answer, what: `group ${name}` }, (data) => h(Content, { data })),
  );
}

function Actions({ group }) {
  const members = group.members_total ?? group.members.length;
  const partitions = group.partitions.filter((row) => row.committed !== null).length;
  const values = { group: group.group, members };
  return h(
    React.Fragment,
    null,
    h(ActionButton, { action: "reset_offsets", values, plain: true }, "Reset offsets"),
    h(ActionButton, { action: "delete_group", values: { ...values, partitions }, danger: true }, "Delete"),
  );
}

const MEMBER_COLUMNS = [
  { id: "client", label: "Client", cell: (row) => row.client_id || "–" },
  { id: "host", label: "Host", width: "12rem", cell: (row) => row.host || "–" },
  { id: "instance", label: "Static id", width: "10rem", cell: (row) => row.instance_id ?? "–" },
  {
    id: "partitions",
    label: "Reads",
    cell: (row) =>
      (row.partitions ?? []).map(([topic, numbers]) => `${topic}: ${numbers.join(", ")}`).join("; ") || "nothing",
  },
];

function Content({ data }) {
  const { place } = useCluster();
  const latest = isLatest(place);
  const columns = useMemo(
    () => [
      {
        id: "topic",
        label: "Topic",
        value: (row) => row.topic,
        cell: (row) => rowLink(place.to({ view: "topic", topic: row.topic }), row.topic),
      },
      {
        id: "partition",
        label: "Partition",
        end: true,
        width: "7rem",
        value: (row) => row.partition,
        cell: (row) => row.partition,
      },
      {
        id: "committed",
        label: "Committed",
        end: true,
        width: "10rem",
        value: (row) => row.committed,
        cell: (row) => (row.committed === null ? h("span", { "data-quiet": "" }, "none") : number(row.committed)),
      },
      { id: "end", label: "End", end: true, width: "10rem", value: (row) => row.end, cell: (row) => number(row.end) },
      lagColumn(latest),
      {
        id: "client",
        label: "Read by",
        value: (row) => row.client_id,
        cell: (row) => row.client_id ?? h("span", { "data-quiet": "" }, "no member"),
      },
    ],
    [place, latest],
  );
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(Facts, {
      facts: [
        ["State", h(State, { state: data.state })],
        ["Members", number(data.members_total ?? data.members.length)],
        ["Lag", number(lagOf(data, latest))],
        [
          "Coordinator",
          data.coordinator === null || data.coordinator === undefined ? "–" : `Broker ${data.coordinator}`,
        ],
        ["Assignor", data.assignor || "–"],
      ],
    }),
    h(MissingParts, { data }),
    h(LagChoice, data),
    h(
      Section,
      { title: "Offsets" },
      data.partitions.length === 0
        ? h(Empty, { title: "The group has committed no offsets." })
        : h(Table, {
            name: "Offsets of the group",
            columns,
            rows: data.partitions,
            rowKey: (row) => `${row.topic}-${row.partition}`,
            cards: true,
            order: place.get("sort") || "-lag",
            onOrder: (sort) => place.stay({ sort }),
          }),
    ),
    h(History, { kind: "group", name: data.group }),
    h(
      Section,
      { title: "Members" },
      data.members.length === 0
        ? h(Empty, { title: "The group has no members now." })
        : h(Table, {
            name: "Members of the group",
            columns: MEMBER_COLUMNS,
            rows: data.members,
            rowKey: (row) => row.member_id,
            cards: true,
          }),
    ),
  );
}
