// The tab on a DAG run: the run's configuration, and what each of its tasks worked on and returned.

import { airflow } from "./api.js";
import { number } from "./format.js";
import { RouterLink, UI, h } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { Empty, Loading, Problem, Section, State } from "./components.js";
import { PAGE, search } from "./page_address.js";
import { ended, useRun } from "./dag_runs.js";
import { Failure } from "./failure.js";
import { Outcome } from "./outcome.js";
import { taskPath } from "./run_paths.js";

const { Badge, Box, Code, Flex, Text } = UI;
const LONGEST = 6000;

function LogyardRun({ dagId, runId }) {
  if (!dagId || !runId) return null;
  return h(RunDetails, { key: `${dagId} ${runId}`, run: { dag_id: dagId, run_id: runId } });
}

function RunDetails({ run }) {
  const { state, conf, tasks, known, problem } = useRun(run);
  const ran = tasks.filter((task) => task.state !== "skipped" && task.state !== "removed");
  // Where all were skipped they say why.
  const own = ran.length > 0 ? ran : tasks;
  return h(
    Flex,
    { direction: "column", gap: "5", padding: "4", height: "100%", overflow: "auto", "data-testid": "logyard-run" },
    h(Problem, { problem }),
    conf && Object.keys(conf).length > 0 && h(Section, { title: "Configuration" }, h(Document, { value: conf })),
    h(
      Section,
      { title: "Tasks" },
      (!known && !problem) || (tasks.length === 0 && !ended(state))
        ? h(Loading, { what: "tasks", rows: 3 })
        : own.length === 0
          ? h(Empty, { title: "No task of this run has run." })
          : h(
              Flex,
              { direction: "column", gap: "3" },
              own.map((task) => h(Task, { key: `${task.task_id} ${task.map_index}`, run, task })),
            ),
    ),
  );
}

function Task({ run, task }) {
  const over = ["success", "failed", "upstream_failed"].includes(task.state);
  const where = airflow("dags", run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id);
  // Requested again when the task ends: then its result exists.
  const links = usePolled(over ? `${where}/links?map_index=${task.map_index}` : "", 0);
  const result = usePolled(
    task.state === "success" ? `${where}/xcomEntries/return_value?map_index=${task.map_index}&deserialize=false` : "",
    0,
  );
  const touched = places(links.data?.extra_links);
  return h(
    Box,
    { borderWidth: "1px", borderRadius: "md", padding: "3" },
    h(
      Flex,
      { gap: "3", alignItems: "center", wrap: "wrap" },
      h(
        UI.Link,
        { asChild: true, color: "fg.info", fontWeight: "semibold" },
        h(
          RouterLink,
          { to: taskPath(run, task) },
          task.map_index >= 0 ? `${task.task_id} [${task.map_index}]` : task.task_id,
        ),
      ),
      h(State, { state: task.state ?? "none" }),
      h(Text, { color: "fg.muted", fontSize: "sm" }, task.operator_name ?? task.operator ?? ""),
      touched.map((place) =>
        h(Badge, { key: place.search, asChild: true, variant: "outline" }, h(RouterLink, { to: place }, place.label)),
      ),
    ),
    h(Outcome, { run, task }),
    task.state === "failed" && h(Failure, { key: task.try_number, run, task }),
    result.data && h(Returned, { value: result.data.value }),
  );
}

// Each topic, broker and group that a task's link names, as places of the page.
function places(links) {
  const link = links?.Logyard;
  if (typeof link !== "string" || !link.startsWith(PAGE)) return [];
  const query = new URLSearchParams(link.slice(PAGE.length));
  const conn_id = query.get("conn_id") ?? "";
  const found = ["topic", "broker", "group"].flatMap((view) =>
    query
      .getAll(view)
      .map((name) => ({ label: `${view} ${name}`, pathname: PAGE, search: search({ conn_id, view, [view]: name }) })),
  );
  return found.length ? found : [{ label: `cluster ${conn_id}`, pathname: PAGE, search: search({ conn_id }) }];
}

function Returned({ value: given }) {
  const value = typeof given === "string" ? parsed(given) : given;
  if (value === null || value === undefined) return null;
  return h(
    Flex,
    { direction: "column", gap: "2", marginTop: "2" },
    h(
      Box,
      { as: "details", fontSize: "sm" },
      h("summary", { style: { cursor: "pointer" } }, "Result"),
      h(Box, { marginTop: "2" }, h(Document, { value })),
    ),
  );
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function Document({ value }) {
  const text = JSON.stringify(value, null, 2) ?? String(value);
  const cut = text.length > LONGEST;
  return h(
    Code,
    {
      as: "pre",
      display: "block",
      whiteSpace: "pre-wrap",
      wordBreak: "break-all",
      padding: "3",
      maxHeight: "24rem",
      overflow: "auto",
      fontSize: "xs",
    },
    cut ? `${text.slice(0, LONGEST)}\n… ${number(text.length - LONGEST)} characters more` : text,
  );
}

globalThis["Cluster changes"] = LogyardRun;
globalThis.LogyardRun = LogyardRun;
globalThis.AirflowPlugin = LogyardRun;
export default LogyardRun;
