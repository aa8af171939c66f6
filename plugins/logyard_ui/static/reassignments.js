// Reassignments: those that run, with their progress and a way to cancel them; below, the next one: plan and run it.

import { airflow, sentence } from "./api.js";
import { isOn, useCluster, useRoute } from "./cluster_context.js";
import { bytes, percent, plural, seconds } from "./format.js";
import { Fragment, RouterLink, UI, h, useMemo, useState } from "./airflow_ui.js";
import { refresh, usePolled } from "./polling.js";
import { ActionButton } from "./action_button.js";
import { Bar, Loaded, MissingParts, Notice, Problem, Section } from "./components.js";
import { Planning } from "./reassignment_plan.js";
import { cancel } from "./dag_runs.js";
import { runPath } from "./run_paths.js";
import { Table } from "./table.js";

const { Box, Button, Flex, Text } = UI;
const MOVES_MS = 2000;
const RUNS_MS = 5000;
// The task of each DAG that owns the moves.
const WORKING = { reassign_replicas: "execute", decommission_broker: "decommission" };

export function Reassignments() {
  const answer = useRoute("reassignments", {}, MOVES_MS);
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(
      Section,
      { title: "Moving now" },
      h(Loaded, { answer, what: "reassignments", rows: 3 }, (data) => h(Moving, { data })),
    ),
    h(Planning, { running: Boolean(answer.data?.running) }),
  );
}

function Moving({ data }) {
  if (data.running === null)
    return h(Notice, { status: "warning" }, "No controller answers: the running reassignments are unknown.");
  const total = data.moves_total ?? data.moves.length;
  return h(
    Flex,
    { direction: "column", gap: "3" },
    h(Owners, { moves: total }),
    h(MissingParts, { data }),
    total === 0
      ? h(Text, { color: "fg.muted" }, "Nothing moves.")
      : h(
          Fragment,
          null,
          h(
            Box,
            { borderWidth: "1px", borderRadius: "md", padding: "4" },
            h(
              Flex,
              { justifyContent: "space-between", gap: "4", marginBottom: "2", wrap: "wrap", role: "status" },
              h(
                Text,
                { fontWeight: "semibold" },
                `${plural(total, "partition")} · ${bytes(data.bytes_done)} of ${bytes(data.bytes_total)}`,
              ),
              h(
                Text,
                { color: "fg.muted" },
                [
                  data.bytes_per_s !== null && `${bytes(data.bytes_per_s)} per second`,
                  data.seconds_left !== null && `about ${seconds(data.seconds_left)} left`,
                ]
                  .filter(Boolean)
                  .join(" · "),
              ),
            ),
            h(Bar, { part: data.progress, label: "Copied bytes", height: "3" }),
          ),
          h(Table, {
            name: "Partitions that move",
            columns: COLUMNS,
            rows: data.moves,
            rowKey: (row) => `${row.topic}-${row.partition}`,
            cards: true,
          }),
        ),
  );
}

const COLUMNS = [
  { id: "partition", label: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
  { id: "replicas", label: "Replicas", width: "12rem", cell: (row) => row.replicas.join(", ") },
  { id: "to", label: "Target", width: "12rem", cell: (row) => (row.target ?? []).join(", ") },
  {
    id: "bytes",
    label: "Bytes",
    end: true,
    width: "12rem",
    cell: (row) => `${bytes(row.bytes_done)} of ${bytes(row.bytes_total)}`,
  },
  {
    id: "progress",
    label: "Copied",
    width: "14rem",
    cell: (row) =>
      h(
        Flex,
        { alignItems: "center", gap: "2", flex: "1" },
        h(Bar, { part: row.progress, label: `Copied of ${row.topic}-${row.partition}` }),
        h(Box, { width: "3.5rem", flexShrink: "0", textAlign: "end", whiteSpace: "nowrap" }, percent(row.progress)),
      ),
  },
  {
    id: "waits",
    label: "Waits for",
    width: "10rem",
    cell: (row) =>
      row.waits_for?.length
        ? h("span", { "data-bad": "" }, `broker ${row.waits_for.join(", ")}`)
        : row.caught_up?.length
          ? "the controller"
          : "",
  },
];

// The runs that own the moves; a user who may start such a run may cancel it.
function Owners({ moves }) {
  const { actions } = useCluster();
  const reassign = useRunning(actions.get("reassign_replicas"));
  const decommission = useRunning(actions.get("decommission_broker"));
  const runs = [
    ...reassign.map((run) => [run, "reassign_replicas"]),
    ...decommission.map((run) => [run, "decommission_broker"]),
  ];
  const known = reassign.known && decommission.known;
  return h(
    Fragment,
    null,
    runs.map(([run, action]) =>
      h(Owner, { key: run.run_id, run, task: WORKING[action], may: actions.get(action)?.may_run }),
    ),
    moves > 0 &&
      runs.length === 0 &&
      known &&
      h(
        Flex,
        {
          gap: "3",
          alignItems: "center",
          justifyContent: "space-between",
          wrap: "wrap",
          borderWidth: "1px",
          borderRadius: "md",
          padding: "3",
        },
        h(Text, null, "No DAG run owns these moves: they were started by another tool."),
        h(ActionButton, { action: "cancel_reassignment", values: { moves }, danger: true }, "Cancel these moves"),
      ),
  );
}

function useRunning(action) {
  const where = action
    ? `${airflow("dags", action.dag_id, "dagRuns")}?state=running&state=queued&order_by=-start_date&limit=20`
    : "";
  const { conn } = useCluster();
  const { data } = usePolled(where, RUNS_MS);
  return useMemo(() => {
    const runs = (data?.dag_runs ?? [])
      .filter((run) => isOn(conn, action, run.conf))
      .map((run) => ({ dag_id: run.dag_id, run_id: run.dag_run_id, state: run.state }));
    return Object.assign(runs, { known: !where || data !== null });
  }, [data, where, conn, action]);
}

function Owner({ run, task, may }) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const stop = async () => {
    setBusy(true);
    setProblem("");
    try {
      await cancel(run, task);
      setAsking(false);
    } catch (found) {
      setProblem(sentence(found));
    }
    setBusy(false);
    refresh();
  };
  return h(
    Flex,
    { direction: "column", gap: "2", borderWidth: "1px", borderRadius: "md", padding: "3" },
    h(
      Flex,
      { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
      h(
        Text,
        null,
        run.state === "running" ? "Run by " : "Waiting: ",
        h(
          UI.Link,
          { asChild: true, color: "fg.info" },
          h(RouterLink, { to: runPath(run) }, `${run.dag_id}, ${run.run_id}`),
        ),
      ),
      may &&
        !asking &&
        h(Button, { size: "sm", variant: "outline", colorPalette: "red", onClick: () => setAsking(true) }, "Cancel"),
      asking &&
        h(
          Flex,
          { gap: "2", alignItems: "center", role: "alertdialog", "aria-label": "Cancel this reassignment?" },
          h(
            Text,
            { fontSize: "sm" },
            busy
              ? "Waiting for the run to accept the cancellation …"
              : "Running moves go back to the former replicas; finished moves stay.",
          ),
          h(Button, { size: "sm", variant: "ghost", disabled: busy, onClick: () => setAsking(false) }, "Keep moving"),
          h(
            Button,
            { size: "sm", colorPalette: "red", loading: busy, autoFocus: true, onClick: stop },
            "Cancel the moves",
          ),
        ),
    ),
    h(Problem, { problem }),
  );
}
