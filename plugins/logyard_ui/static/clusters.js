// All clusters side by side: one row for each connection, as its overview says.

import { pageApi } from "./api.js";
import { useCluster } from "./cluster_context.js";
import { Empty, Health, Loading } from "./components.js";
import { clock, number, outageSentence } from "./format.js";
import { Fragment, UI, h, useMemo } from "./airflow_ui.js";
import { rowLink } from "./page_address.js";
import { usePolled } from "./polling.js";
import { Table } from "./table.js";

const { Flex, Text } = UI;
const CONNECTIONS_MS = 60000;
const EVERY_MS = 10000;
// An API server keeps what it has read of 32 clusters.
const SHOWN = 30;

// The connections that the user may see; null while they are read.
export function useConnections() {
  const { data, problem } = usePolled(pageApi("connections"), CONNECTIONS_MS);
  return data?.connections ?? (problem ? [] : null);
}

export function Clusters() {
  const { place } = useCluster();
  const connections = useConnections();
  const columns = useMemo(() => columnsOf(place), [place]);
  if (connections === null) return h(Loading, { what: "the clusters" });
  if (connections.length === 0)
    return h(Empty, { title: "There is no cluster." }, "Each connection of type Logyard is one.");
  const left = connections.length - SHOWN;
  return h(
    Flex,
    { direction: "column", gap: "3", flex: "1", minHeight: "0" },
    h(Table, {
      name: "Clusters",
      columns,
      rows: connections.slice(0, SHOWN),
      rowKey: (row) => row.conn_id,
      fill: true,
      cards: true,
    }),
    left > 0 && h(Text, { color: "fg.muted", fontSize: "sm" }, `and ${left} more, under Connection`),
  );
}

// Every cell asks for its cluster's overview, which is requested once for all of them.
function Value({ conn, part }) {
  const { data, problem } = usePolled(pageApi("overview", { conn_id: conn }), EVERY_MS);
  if (!data && !problem) return h("span", { "data-quiet": "" }, "…");
  return part(data, problem) ?? h("span", { "data-quiet": "" }, "–");
}

const of = (part) => (row) => h(Value, { conn: row.conn_id, part });

// What nobody can know while the cluster does not answer is a dash.
const now = (part) => of((data) => (data?.reachable ? part(data) : null));

// A count that should be nothing.
const bad = (name) => now((data) => h("span", { "data-bad": data[name] ? "" : undefined }, number(data[name])));

const columnsOf = (place) => [
  {
    id: "conn",
    label: "Connection",
    least: 11,
    cell: (row) => rowLink(place.to({ conn_id: row.conn_id }), row.conn_id, { title: row.bootstrap }),
  },
  {
    id: "health",
    label: "Health",
    width: "8rem",
    cell: of((data) => h(Health, { health: data?.health ?? "unreachable", size: "sm" })),
  },
  {
    id: "controller",
    label: "Controller",
    width: "7rem",
    cell: now(({ controller }) =>
      controller?.alive ? `Broker ${controller.id}` : h("span", { "data-bad": "" }, "none"),
    ),
  },
  { id: "brokers", label: "Brokers", end: true, width: "6.5rem", cell: now(({ brokers }) => h(Brokers, { brokers })) },
  { id: "topics", label: "Topics", end: true, width: "6rem", cell: of((data) => data && number(data.topics)) },
  {
    id: "partitions",
    label: "Partitions",
    end: true,
    width: "7rem",
    cell: of((data) => data && number(data.partitions)),
  },
  { id: "under", label: "Under-replicated", end: true, width: "10rem", cell: bad("under_replicated") },
  { id: "offline", label: "Offline", end: true, width: "6rem", cell: bad("offline") },
  { id: "moving", label: "Moving", end: true, width: "6rem", cell: now((data) => number(data.reassigning)) },
  { id: "said", label: "What was found", least: 14, cell: of((data, problem) => h(Said, { data, problem })) },
];

function Brokers({ brokers }) {
  const { alive, expected, missing } = brokers;
  const text = expected ? `${alive} of ${expected}` : number(alive);
  return h("span", { "data-bad": missing?.length ? "" : undefined }, text);
}

function Said({ data, problem }) {
  if (!data) return problem.message;
  if (!data.reachable) return outageSentence(data);
  return h(
    Fragment,
    null,
    (data.findings ?? []).join(" · ") || h("span", { "data-quiet": "" }, `as of ${clock(data.taken_at_ms)}`),
  );
}
