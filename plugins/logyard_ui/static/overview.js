// The cluster at a glance: its health, the controller and those before it, unhealthy partitions.

import { ActionButton } from "./action_button.js";
import { useCluster } from "./cluster_context.js";
import { brokersNamed, clock, number, outageSentence, plural, time } from "./format.js";
import { Fragment, UI, h, useMemo } from "./airflow_ui.js";
import { Empty, Figure, Figures, Notice, Replicas, Section, Stale } from "./components.js";
import { History } from "./history.js";
import { Maintenance } from "./maintenance.js";
import { Operations } from "./operations.js";
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
    h(Lists, { overview }),
    h(History, { kind: "cluster" }),
    h(Maintenance),
    h(Operations),
  );
}

function Lists({ overview }) {
  const lists = h(
    Fragment,
    null,
    h(UnhealthyPartitions, { troubles: overview.troubles ?? [] }),
    h(Controllers, { controllers: overview.controllers ?? [], known: overview.reachable }),
  );
  if (overview.reachable || overview.taken_at_ms === null) return lists;
  return h(Stale, { since: overview.taken_at_ms }, lists);
}

function State({ overview }) {
  return h(
    Flex,
    { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
    h(Text, { role: "status" }, told(overview)),
    h(
      Flex,
      { gap: "2", wrap: "wrap" },
      h(Recovery, { overview }),
      h(ActionButton, { action: "create_topic", plain: overview.health !== "ok" }, "Create topic"),
      overview.not_preferred > 0 &&
        h(
          ActionButton,
          { action: "elect_leaders", values: { notPreferred: overview.not_preferred }, plain: true },
          "Elect preferred leaders",
        ),
    ),
  );
}

function told(overview) {
  if (!overview.reachable) return ""; // said above, on every view
  if (overview.findings?.length) return overview.findings.join(" · ");
  return overview.health === "ok" ? "Every partition has a leader and every replica is in sync." : "";
}

// One DAG, named for what it is to do now: start the brokers that are missing, or look after the controller.
function Recovery({ overview }) {
  const brokers = lost(overview);
  if (brokers.length === 0)
    return h(
      ActionButton,
      { action: "recover_controller", plain: overview.controller?.alive !== false },
      "Recover controller",
    );
  return h(
    ActionButton,
    { action: "recover_controller", values: { brokers, dry_run: false } },
    `Start ${brokersNamed(brokers)}`,
  );
}

// The brokers that should run and do not answer; where none answers, all that are known.
function lost({ reachable, outage, brokers }) {
  const missing = brokers?.missing ?? [];
  return reachable ? missing : [...missing, ...(outage?.broker_ids ?? [])].sort((a, b) => a - b);
}

function Counts({ overview }) {
  const { place } = useCluster();
  const { brokers, controller, reachable } = overview;
  const now = (value) => (reachable ? number(value) : "–");
  const bad = (value) => (reachable && value ? "bad" : undefined);
  const old = { dim: !reachable, help: reachable ? undefined : before(overview) };
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
  const missing = reachable ? (brokers?.missing ?? []) : [];
  return h(
    Figures,
    null,
    h(Figure, {
      label: "Controller",
      value: !reachable ? "–" : controller?.alive ? `Broker ${controller.id}` : "None",
      help: reachable && typeof controller?.epoch === "number" ? `epoch ${controller.epoch}` : undefined,
      tone: reachable && !controller?.alive ? "bad" : undefined,
      wrap: to("brokers"),
    }),
    h(Figure, {
      label: "Brokers",
      value: brokers?.expected ? `${now(brokers.alive)} of ${brokers.expected}` : now(brokers?.alive),
      help: !reachable ? "none answers" : missing.length ? `missing: ${missing.join(", ")}` : undefined,
      tone: !reachable || missing.length ? "bad" : undefined,
      wrap: to("brokers"),
    }),
    h(Figure, { label: "Topics", value: number(overview.topics), ...old, wrap: to("topics") }),
    h(Figure, {
      label: "Partitions",
      value: number(overview.partitions),
      ...old,
      help: old.help ?? plural(overview.replicas ?? 0, "replica"),
      wrap: to("map"),
    }),
    h(Figure, {
      label: "Under-replicated",
      value: now(overview.under_replicated),
      tone: bad(overview.under_replicated),
      wrap: to("topics", { only: "trouble" }),
    }),
    h(Figure, {
      label: "Offline",
      value: now(overview.offline),
      tone: bad(overview.offline),
      wrap: to("topics", { only: "trouble" }),
    }),
    h(Figure, {
      label: "Not preferred",
      value: now(overview.not_preferred),
      tone: reachable && overview.not_preferred ? "warn" : undefined,
      wrap: to("topics", { sort: "-not_preferred" }),
    }),
    h(Figure, { label: "Moving", value: now(overview.reassigning), wrap: to("reassignments") }),
  );
}

function before({ taken_at_ms }) {
  return taken_at_ms ? `as of ${clock(taken_at_ms)}` : undefined;
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
      {
        id: "replicas",
        label: "Replicas",
        width: "12rem",
        cell: (row) => h(Replicas, { ...row, isr: [...row.isr, ...row.adding] }),
      },
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
      cards: true,
    }),
  );
}

// A replica that a reassignment adds is not out of sync.
function missing({ replicas, isr, adding }) {
  return replicas.filter((broker) => !isr.includes(broker) && !adding.includes(broker));
}

const controllerColumns = (known) => [
  {
    id: "id",
    label: "Controller",
    width: "10rem",
    cell: (row) => (row.id === null ? h("span", { "data-bad": "" }, "none") : `Broker ${row.id}`),
  },
  { id: "epoch", label: "Epoch", end: true, width: "6rem", cell: (row) => row.epoch ?? "–" },
  { id: "since", label: "Seen since", cell: (row) => time(row.since_ms) },
  {
    id: "until",
    label: "Until",
    cell: (row) => (row.until_ms !== null ? time(row.until_ms) : known ? "now" : "not known"),
  },
];

function Controllers({ controllers, known }) {
  const columns = useMemo(() => controllerColumns(known), [known]);
  return h(
    Section,
    { title: "Controllers" },
    controllers.length === 0
      ? h(Empty, { title: "No controller is known yet." })
      : h(Table, {
          name: "Controllers",
          columns,
          rows: controllers,
          rowKey: (row) => `${row.since_ms}`,
          maxHeight: "20rem",
          cards: true,
        }),
    h(
      Box,
      { color: "fg.muted", fontSize: "xs", marginTop: "1" },
      "As this API server has read them, the latest first.",
    ),
  );
}

export function Unreachable({ overview }) {
  return overview.reachable ? null : h(Notice, { status: "error" }, outageSentence(overview));
}
