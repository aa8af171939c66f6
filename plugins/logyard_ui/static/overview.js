// The cluster at a glance: its health, the controller and those before it, unhealthy partitions.

import { ActionButton } from "./action_button.js";
import { useCluster } from "./cluster_context.js";
import { number, plural, time } from "./format.js";
import { UI, h, useMemo } from "./airflow_ui.js";
import { Empty, Figure, Figures, Notice, Replicas, Section } from "./components.js";
import { PageLink, rowLink } from "./page_address.js";
import { Table } from "./table.js";

const { Box, Flex, Text } = UI;

export function Overview() {
  const { overview } = useCluster();
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(State, { overview }),
    h(Counts, { overview }),
    h(UnhealthyPartitions, { troubles: overview.troubles ?? [] }),
    h(Controllers, { controllers: overview.controllers ?? [] }),
  );
}

function State({ overview }) {
  return h(
    Flex,
    { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
    h(Text, { role: "status" }, overview.findings?.length ? overview.findings.join(" · ") : quiet(overview)),
    h(
      Flex,
      { gap: "2", wrap: "wrap" },
      h(ActionButton, { action: "create_topic" }, "Create topic"),
      overview.not_preferred > 0 &&
        h(
          ActionButton,
          { action: "elect_leaders", values: { notPreferred: overview.not_preferred }, plain: true },
          "Elect preferred leaders",
        ),
      h(ActionButton, { action: "recover_controller", plain: true }, "Recover controller"),
    ),
  );
}

function quiet(overview) {
  return overview.health === "ok" ? "Every partition has a leader and every replica is in sync." : "";
}

function Counts({ overview }) {
  const { place } = useCluster();
  const { brokers, controller } = overview;
  const to = (view, more) => (child) =>
    h(
      PageLink,
      {
        to: place.to({ view, ...more }),
        color: "inherit",
        display: "block",
        height: "full",
        _hover: { textDecoration: "none" },
      },
      child,
    );
  const lost = brokers?.missing?.length ?? 0;
  return h(
    Figures,
    null,
    h(Figure, {
      label: "Controller",
      value: controller?.alive ? `Broker ${controller.id}` : "None",
      help: controller?.epoch === null || controller?.epoch === undefined ? undefined : `epoch ${controller.epoch}`,
      tone: controller?.alive ? undefined : "bad",
      wrap: to("brokers"),
    }),
    h(Figure, {
      label: "Brokers",
      value: brokers?.expected ? `${brokers.alive} of ${brokers.expected}` : number(brokers?.alive),
      help: lost ? `missing: ${brokers.missing.join(", ")}` : undefined,
      tone: lost ? "bad" : undefined,
      wrap: to("brokers"),
    }),
    h(Figure, { label: "Topics", value: number(overview.topics), wrap: to("topics") }),
    h(Figure, {
      label: "Partitions",
      value: number(overview.partitions),
      help: plural(overview.replicas ?? 0, "replica"),
      wrap: to("map"),
    }),
    h(Figure, {
      label: "Under-replicated",
      value: number(overview.under_replicated),
      tone: overview.under_replicated ? "bad" : undefined,
      wrap: to("topics", { only: "trouble" }),
    }),
    h(Figure, {
      label: "Offline",
      value: number(overview.offline),
      tone: overview.offline ? "bad" : undefined,
      wrap: to("topics", { only: "trouble" }),
    }),
    h(Figure, {
      label: "Not preferred",
      value: number(overview.not_preferred),
      tone: overview.not_preferred ? "warn" : undefined,
      wrap: to("topics", { sort: "-not_preferred" }),
    }),
    h(Figure, { label: "Moving", value: number(overview.reassigning), wrap: to("reassignments") }),
  );
}

function UnhealthyPartitions({ troubles }) {
  const { place } = useCluster();
  const columns = useMemo(
    () => [
      {
        id: "topic",
        label: "Topic",
        cell: (row) => rowLink(place.to({ view: "topic", topic: row.topic }), row.topic),
      },
      { id: "partition", label: "Partition", end: true, width: "6rem", cell: (row) => row.partition },
      {
        id: "leader",
        label: "Leader",
        end: true,
        width: "6rem",
        cell: (row) => h("span", { "data-bad": row.offline ? "" : undefined }, row.leader < 0 ? "none" : row.leader),
      },
      { id: "replicas", label: "Replicas", width: "12rem", cell: (row) => h(Replicas, row) },
      {
        id: "what",
        label: "Problem",
        width: "14rem",
        cell: (row) => (row.offline ? "offline" : `out of sync: ${missing(row).join(", ")}`),
      },
    ],
    [place],
  );
  if (troubles.length === 0) return null;
  return h(
    Section,
    { title: "Unhealthy partitions" },
    h(Table, {
      name: "Unhealthy partitions",
      columns,
      rows: troubles,
      rowKey: (row) => `${row.topic}-${row.partition}`,
    }),
  );
}

function missing({ replicas, isr }) {
  return replicas.filter((broker) => !isr.includes(broker));
}

const CONTROLLER_COLUMNS = [
  {
    id: "id",
    label: "Controller",
    width: "10rem",
    cell: (row) => (row.id === null ? h("span", { "data-bad": "" }, "none") : `Broker ${row.id}`),
  },
  { id: "epoch", label: "Epoch", end: true, width: "6rem", cell: (row) => row.epoch ?? "–" },
  { id: "since", label: "Seen since", cell: (row) => time(row.since_ms) },
  { id: "until", label: "Until", cell: (row) => (row.until_ms === null ? "now" : time(row.until_ms)) },
];

function Controllers({ controllers }) {
  return h(
    Section,
    { title: "Controllers" },
    controllers.length === 0
      ? h(Empty, { title: "No controller is known yet." })
      : h(Table, {
          name: "Controllers",
          columns: CONTROLLER_COLUMNS,
          rows: controllers,
          rowKey: (row) => `${row.since_ms}`,
          maxHeight: "20rem",
        }),
    h(
      Box,
      { color: "fg.muted", fontSize: "xs", marginTop: "1" },
      "As this API server has read them, the latest first.",
    ),
  );
}

export function Unreachable({ overview }) {
  if (overview.reachable) return null;
  const since = overview.taken_at_ms ? ` The page shows the state of ${time(overview.taken_at_ms)}.` : "";
  return h(Notice, { status: "error" }, `${overview.problem ?? "The cluster does not answer."}${since}`);
}
