// DAG runs that were started on this page, polled until they end.

import { airflow, get, write } from "./api.js";
import { RouterLink, UI, h, useEffect, useState, useSyncExternalStore } from "./airflow_ui.js";
import { refresh, usePolled } from "./polling.js";
import { State } from "./components.js";
import { Failure } from "./failure.js";
import { NoTaskFailed, Outcome, hasEnded } from "./outcome.js";
import { runPath, taskPath } from "./run_paths.js";

const { Box, CloseButton, Flex, Spinner, Text } = UI;
const EVERY_MS = 1500;
// A run that has ended may be cleared, and go on.
const ENDED_MS = 15000;
const KEPT = 4;

// {dag_id, run_id, title}, the latest first; kept while the page is open.
let started = [];
const listeners = new Set();

function setStarted(runs) {
  started = runs;
  for (const listener of listeners) listener();
}

function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Start a DAG as the user who is logged in. Raises Refused with Airflow's reason.
export async function start(dag_id, conf, title) {
  const answer = await write("POST", airflow("dags", dag_id, "dagRuns"), { logical_date: null, conf });
  const run = { dag_id, run_id: answer.dag_run_id, title };
  setStarted([run, ...started].slice(0, KEPT));
  return run;
}

const PAUSE_MS = 1000;
// A trigger runs about a second after a triggerer took it; a running task hears of the cancellation from its worker.
const HEARS_AFTER_MS = 2500;
const WORKS_MS = 12000;
const PATIENCE_MS = 45000;

// Mark the task that moves replicas as failed: that cancels its moves and ends its throttle. Between the end of its
// worker and the start of its trigger nothing notices the mark, and the moves would go on: wait until one of them runs.
export async function cancel(run, task) {
  const where = airflow("dags", run.dag_id, "dagRuns", run.run_id, "taskInstances", task);
  const began = performance.now(); // a monotonic clock: setting the wall clock does not change the wait
  let heard = 0;
  for (;;) {
    const { state, trigger, start_date } = await get(where);
    if (ended(state)) return;
    const now = performance.now();
    heard = state === "deferred" && trigger?.triggerer_id != null ? heard || now : 0;
    const working = state === "running" && start_date ? Date.now() - Date.parse(start_date) > WORKS_MS : false;
    const idle = state !== "running" && state !== "deferred";
    if (idle || working || (heard && now - heard >= HEARS_AFTER_MS) || now - began > PATIENCE_MS) break;
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
  await write("PATCH", where, { new_state: "failed" });
}

export function ended(state) {
  return state === "success" || state === "failed";
}

// {state, tasks, known, problem} of a run, polled until it ends, and rarely from then on; `known`: its tasks are.
export function useRun({ dag_id, run_id }) {
  const where = airflow("dags", dag_id, "dagRuns", run_id);
  const [over, setOver] = useState(false);
  const every = over ? ENDED_MS : EVERY_MS;
  const run = usePolled(where, every);
  const tasks = usePolled(`${where}/taskInstances`, every);
  const state = run.data?.state ?? "queued";
  useEffect(() => {
    setOver(ended(state));
    if (ended(state)) refresh();
  }, [state]);
  return {
    state,
    conf: run.data?.conf,
    tasks: inOrder(tasks.data?.task_instances ?? []),
    known: tasks.data !== null,
    problem: run.problem ?? tasks.problem,
  };
}

function inOrder(tasks) {
  const begun = (task) => task.start_date ?? "9";
  return [...tasks].sort((left, right) => (begun(left) < begun(right) ? -1 : begun(left) > begun(right) ? 1 : 0));
}

// One run: its state, its tasks, and a link to it.
export function RunProgress({ run }) {
  const { state, tasks, problem } = useRun(run);
  const failed = tasks.filter((task) => task.state === "failed");
  return h(
    Flex,
    { direction: "column", gap: "3" },
    h(
      Flex,
      { gap: "2", alignItems: "center", role: "status", wrap: "wrap" },
      !ended(state) && h(Spinner, { size: "sm" }),
      h(State, { state }),
      h(UI.Link, { asChild: true, color: "fg.info" }, h(RouterLink, { to: runPath(run) }, `Run of ${run.dag_id}`)),
    ),
    tasks.length > 0 &&
      h(
        Flex,
        { as: "ol", direction: "column", gap: "1", fontSize: "sm" },
        tasks.map((task) =>
          h(
            Flex,
            { as: "li", key: `${task.task_id}${task.map_index}`, gap: "2", alignItems: "center" },
            h(Box, { width: "9rem" }, task.task_id),
            h(State, { state: task.state ?? "none", size: "xs" }),
          ),
        ),
      ),
    tasks
      .filter((task) => task.state === "awaiting_input")
      .map((task) =>
        h(
          UI.Link,
          { key: task.task_id, asChild: true, color: "fg.info" },
          h(RouterLink, { to: `${taskPath(run, task)}/required_actions` }, "It waits for an approval: open it"),
        ),
      ),
    tasks
      .filter(hasEnded)
      .map((task) => h(Outcome, { key: `${task.task_id} ${task.map_index}`, run, task })),
    problem && h(Text, { color: "fg.error", fontSize: "sm" }, problem.message),
    failed.map((task) => h(Failure, { key: `${task.task_id} ${task.map_index}`, run, task })),
    state === "failed" && tasks.length > 0 && failed.length === 0 && h(NoTaskFailed),
  );
}

// The runs that were started on this page, below the navigation.
export function StartedRuns() {
  const runs = useSyncExternalStore(subscribe, () => started);
  if (runs.length === 0) return null;
  return h(
    Flex,
    { gap: "2", wrap: "wrap", as: "ul", "aria-label": "Runs that were started here" },
    runs.map((run) => h(Chip, { key: run.run_id, run })),
  );
}

function Chip({ run }) {
  const { state } = useRun(run);
  return h(
    Flex,
    {
      as: "li",
      alignItems: "center",
      gap: "2",
      borderWidth: "1px",
      borderRadius: "md",
      paddingLeft: "3",
      fontSize: "sm",
    },
    !ended(state) && h(Spinner, { size: "xs" }),
    h(RouterLink, { to: runPath(run) }, run.title),
    h(State, { state, size: "xs" }),
    h(CloseButton, {
      size: "2xs",
      "aria-label": `Forget ${run.title}`,
      onClick: () => setStarted(started.filter((other) => other !== run)),
    }),
  );
}
