// Brokers: replicas, leaders and bytes of each, their distance from the mean, and the racks.

import { useCluster, useList, useRoute } from "./cluster_context.js";
import { bytes, number } from "./format.js";
import { UI, h, useMemo } from "./airflow_ui.js";
import { ActionButton, PlaceButton } from "./action_button.js";
import { Empty, Facts, Head, Loaded, MissingParts, Section } from "./components.js";
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
      h(Racks, { racks: data.racks ?? [] }),
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
          order: place.get("sort") || "id",
          onOrder: (sort) => place.stay({ sort }),
        }),
  );
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
    h(Table, { name: "Racks", columns: RACK_COLUMNS, rows: racks, rowKey: (row) => row.rack ?? "" }),
  );
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

const DIRECTORY_COLUMNS = [
  { id: "path", label: "Directory", cell: (row) => row.path },
  { ...count("bytes", "Bytes", "8rem"), cell: (row) => bytes(row.bytes) },
  count("replicas", "Replicas"),
  count("future_replicas", "Moving in", "8rem"),
];

// This broker beside the others.
function ComparedSettings({ id }) {
  const { place } = useCluster();
  const brokers = useList("brokers").data?.brokers ?? [];
  const others = brokers.filter((one) => one.alive && one.id !== id).map((one) => one.id);
  const name = [id, ...others].slice(0, 4);
  return h(PlaceButton, { to: place.to({ view: "compare", of: "brokers", name }) }, "Compare");
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
        h(Table, { name: "Directories", columns: DIRECTORY_COLUMNS, rows: data.log_dirs, rowKey: (row) => row.path }),
      ),
    h(History, { kind: "broker", name: String(broker.id) }),
    data.configs &&
      h(
        Section,
        { title: "Settings", aside: h(ComparedSettings, { id: broker.id }) },
        h(Settings, { configs: data.configs, name: "Settings of the broker" }),
      ),
  );
}
