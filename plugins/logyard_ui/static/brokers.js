// Brokers: replicas, leaders and bytes of each, their distance from the mean, and the racks.

import { useCluster, useList, useRoute } from "./cluster_context.js";
import { bytes, number, percent } from "./format.js";
import { UI, h, useMemo } from "./airflow_ui.js";
import { ActionButton, PlaceButton } from "./action_button.js";
import { ALL, brokerSettings } from "./broker_actions.js";
import { Empty, Facts, Head, Loaded, MissingParts, Notice, Section } from "./components.js";
import { History } from "./history.js";
import { rowLink } from "./page_address.js";
import { Settings } from "./settings.js";
import { SkewBar } from "./skew_bar.js";
import { Table } from "./table.js";

const { Badge, Flex, Text } = UI;

export function Brokers() {
  const answer = useList("brokers");
  return h(Loaded, { answer, what: "brokers" }, (data) =>
    h(
      Flex,
      { direction: "column", gap: "6" },
      h(MissingParts, { data }),
      h(List, { data }),
      h(Disks, { brokers: data.brokers }),
      h(Racks, { racks: data.racks ?? [] }),
      h(EverySettings),
    ),
  );
}

const count = (id, label, width = "6.8rem") => ({
  id,
  label,
  end: true,
  width,
  value: (row) => row[id],
  cell: (row) => number(row[id]),
});
const skew = (id, label) => ({
  id: `skew_${id}`,
  label,
  width: "9.4rem",
  value: (row) => row.skew?.[id],
  cell: (row) => h(SkewBar, { value: row.skew?.[id], label: `${label} of broker ${row.id}` }),
});

function List({ data }) {
  const { place } = useCluster();
  const columns = useMemo(
    () => [
      {
        id: "id",
        label: "Broker",
        width: "10.5rem",
        value: (row) => row.id,
        cell: (row) => h(Identity, { broker: row, to: place.to({ view: "broker", broker: row.id }) }),
      },
      {
        id: "address",
        label: "Address",
        width: "9rem",
        value: (row) => row.host,
        cell: (row) => (row.alive ? `${row.host}:${row.port}` : h("span", { "data-bad": "" }, "not alive")),
      },
      {
        id: "rack",
        label: "Rack",
        width: "5rem",
        value: (row) => row.rack,
        cell: (row) => h(Rack, { rack: row.rack }),
      },
      count("replicas", "Replicas"),
      skew("replicas", "Replica skew"),
      count("leaders", "Leaders"),
      skew("leaders", "Leader skew"),
      {
        ...count("out_of_sync", "Out of sync", "8.2rem"),
        cell: (row) => h("span", { "data-bad": row.out_of_sync ? "" : undefined }, number(row.out_of_sync)),
      },
      { ...count("bytes", "Bytes", "7.5rem"), cell: (row) => bytes(row.bytes) },
      skew("bytes", "Byte skew"),
    ],
    [place],
  );
  return h(
    Section,
    {
      title: "Brokers",
      aside: h(
        ActionButton,
        { action: "reassign_replicas", to: place.to({ view: "reassignments", balance: 1, preview: 1 }), plain: true },
        "Plan an even distribution",
      ),
    },
    data.brokers.length === 0
      ? h(Empty, { title: "No broker is registered." })
      : h(Table, {
          name: "Brokers",
          columns,
          rows: data.brokers,
          rowKey: (row) => row.id,
          cards: true,
          order: place.get("sort") || "id",
          onOrder: (sort) => place.stay({ sort }),
        }),
  );
}

// How full a disk is, marked from 90 % on.
function Full({ share }) {
  if (typeof share !== "number") return "–";
  return h("span", { "data-bad": share >= 0.9 ? "" : undefined }, percent(share));
}

// In one line: a rack's name may be of any length.
function Rack({ rack }) {
  return h(Text, { as: "span", display: "block", truncate: true, title: rack ?? undefined }, rack ?? "–");
}

function Identity({ broker, to }) {
  return h(
    Flex,
    { gap: "2", alignItems: "center" },
    rowLink(to, `Broker ${broker.id}`),
    broker.controller && h(Badge, { colorPalette: "blue" }, "controller"),
  );
}

const DISK_COLUMNS = [
  { id: "id", label: "Broker", cell: (row) => `Broker ${row.id}` },
  { id: "fullest", label: "Fullest disk", end: true, cell: (row) => h(Full, { share: row.disk?.fullest }) },
  { id: "free", label: "Free", end: true, cell: (row) => bytes(row.disk?.free) },
  { id: "total", label: "Size", end: true, cell: (row) => bytes(row.disk?.total) },
];

// Nothing where no broker tells how full its disks are.
function Disks({ brokers }) {
  if (!brokers.some((one) => one.disk)) return null;
  return h(
    Section,
    { title: "Disks" },
    h(Table, { name: "Disks", columns: DISK_COLUMNS, rows: brokers, rowKey: (row) => row.id, cards: true }),
  );
}

const RACK_COLUMNS = [
  { id: "rack", label: "Rack", cell: (row) => row.rack ?? "no rack" },
  { id: "brokers", label: "Brokers", cell: (row) => row.brokers.join(", ") },
  count("replicas", "Replicas"),
  count("leaders", "Leaders"),
  { ...count("bytes", "Bytes", "8rem"), cell: (row) => bytes(row.bytes) },
];

function Racks({ racks }) {
  if (racks.length === 0 || (racks.length === 1 && racks[0].rack === null)) return null;
  return h(
    Section,
    { title: "Racks" },
    h(Table, { name: "Racks", columns: RACK_COLUMNS, rows: racks, rowKey: (row) => row.rack ?? "", cards: true }),
  );
}

const EVERY_MS = 10000;

// The settings of all brokers, beside what each has of its own.
function EverySettings() {
  const answer = useRoute("broker_defaults", {}, EVERY_MS);
  const configs = answer.data?.configs ?? [];
  return h(
    Section,
    { title: "Settings of all brokers", aside: answer.data && h(ChangeSettings, { broker: ALL, configs }) },
    h(Loaded, { answer, what: "settings", rows: 2 }, (data) =>
      data.refused
        ? h(Notice, { status: "warning" }, data.refused)
        : data.configs.length === 0
          ? h(Empty, { title: "Nothing is set for all brokers: each has what its own file says, or the default." })
          : h(Settings, { configs: data.configs, name: "Settings of all brokers", broker: ALL }),
    ),
  );
}

function ChangeSettings({ broker, configs }) {
  const values = brokerSettings(broker, configs);
  return h(ActionButton, { action: "alter_broker_settings", values, plain: true }, "Change settings");
}

export function Broker() {
  const { place } = useCluster();
  const id = place.get("broker");
  const answer = useRoute("broker", { id });
  return h(
    Flex,
    { direction: "column", gap: "5" },
    h(
      Head,
      { list: "Brokers", to: place.to({ view: "brokers" }), name: `Broker ${id}` },
      h(
        ActionButton,
        { action: "reassign_replicas", to: place.to({ view: "reassignments", drain: id, preview: 1 }), plain: true },
        "Plan to empty it",
      ),
      h(ActionButton, { action: "decommission_broker", values: { brokers: id }, danger: true }, "Decommission"),
    ),
    h(Loaded, { answer, what: `broker ${id}` }, (data) => h(Content, { data })),
  );
}

const usedShare = ({ total, free: left }) =>
  typeof total === "number" && typeof left === "number" && total > 0 ? 1 - left / total : null;

const DIRECTORY_COLUMNS = [
  { id: "path", label: "Directory", cell: (row) => (row.online ? row.path : `${row.path} (offline)`) },
  { ...count("bytes", "Bytes", "8rem"), cell: (row) => bytes(row.bytes) },
  count("replicas", "Replicas"),
  count("future_replicas", "Moving in", "8rem"),
  { id: "total", label: "Disk", end: true, width: "7rem", cell: (row) => bytes(row.total) },
  { id: "used", label: "Used", end: true, width: "6rem", cell: (row) => h(Full, { share: usedShare(row) }) },
  { id: "free", label: "Free", end: true, width: "7rem", cell: (row) => bytes(row.free) },
];

// This broker beside the others.
function ComparedSettings({ id }) {
  const { place } = useCluster();
  const brokers = useList("brokers").data?.brokers ?? [];
  const others = brokers.filter((one) => one.alive && one.id !== id).map((one) => one.id);
  const name = [id, ...others].slice(0, 4);
  return h(PlaceButton, { to: place.to({ view: "compare", of: "brokers", name }) }, "Compare");
}

function SettingsActions({ broker, configs }) {
  return h(
    Flex,
    { gap: "2", wrap: "wrap" },
    h(ChangeSettings, { broker, configs }),
    h(ComparedSettings, { id: broker }),
  );
}

function Content({ data }) {
  const { broker } = data;
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(Facts, {
      facts: [
        ["Address", broker.alive ? `${broker.host}:${broker.port}` : "not alive"],
        ["Rack", broker.rack ?? "–"],
        ["Controller", broker.controller ? "yes" : "no"],
        ["Replicas", number(broker.replicas)],
        ["Leaders", `${number(broker.leaders)} (preferred: ${number(broker.preferred_leaders)})`],
        ["Out of sync", number(broker.out_of_sync)],
        ["Bytes", bytes(broker.bytes)],
      ],
    }),
    h(MissingParts, { data }),
    data.log_dirs?.length > 0 &&
      h(
        Section,
        { title: "Directories" },
        h(Table, {
          name: "Directories",
          columns: DIRECTORY_COLUMNS,
          rows: data.log_dirs,
          rowKey: (row) => row.path,
          cards: true,
        }),
      ),
    h(History, { kind: "broker", name: String(broker.id) }),
    data.configs &&
      h(
        Section,
        { title: "Settings", aside: h(SettingsActions, { broker: broker.id, configs: data.configs }) },
        h(Settings, { configs: data.configs, name: "Settings of the broker", broker: broker.id }),
      ),
  );
}
