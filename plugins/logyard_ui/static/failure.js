// What is known of a failed task that could not tell what it did: the task, the last error of its log, and the log.

import { airflow } from "./api.js";
import { RouterLink, UI, h } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { taskPath } from "./run_paths.js";

const { Box, Text } = UI;

// An error of more characters is told by its last line: that of a job begins with its command and all that it wrote.
const LONGEST = 300;

// The last error that a task's log tells, in one line; empty where it tells none. Pure.
export function lastError(log) {
  const lines = (Array.isArray(log?.content) ? log.content : []).filter(
    (line) => typeof line === "object" && line !== null,
  );
  for (const line of [...lines].reverse()) {
    const detail = line.error_detail?.at?.(0);
    if (detail?.exc_value) return oneLine(detail.exc_value);
    if (["error", "critical"].includes(line.level) && line.event) return oneLine(line.event);
  }
  return "";
}

function oneLine(text) {
  const words = (part) => part.split(/\s+/).filter(Boolean).join(" ");
  const whole = words(String(text));
  if (whole.length <= LONGEST) return whole;
  const last = String(text).split("\n").map(words).filter(Boolean).at(-1);
  return last.length <= LONGEST ? last : `${last.slice(0, LONGEST)} …`;
}

// One sentence about a failed task; `error` is null where its log cannot be read. Pure.
export function failed(task, error) {
  const name = task.map_index >= 0 ? `${task.task_id} [${task.map_index}]` : task.task_id;
  if (!task.start_date) return `The task ${name} failed before it began.`;
  if (error === null) return `The task ${name} failed; its log could not be read.`;
  return error === "" ? `The task ${name} failed; its log tells no error.` : `The task ${name} failed: ${error}`;
}

export function Failure({ run, task }) {
  const tries = String(Math.max(task.try_number ?? 1, 1));
  const where = airflow("dags", run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id, "logs", tries);
  const { data, problem } = usePolled(task.start_date ? `${where}?map_index=${task.map_index}` : "", 0);
  const known = !task.start_date || data || problem;
  const error = data ? lastError(data) : null;
  return h(
    Box,
    { fontSize: "sm", "data-testid": "failure" },
    known && h(Text, { color: "fg.error", wordBreak: "break-word" }, failed(task, error)),
    h(
      UI.Link,
      { asChild: true, color: "fg.info" },
      h(RouterLink, { to: taskPath(run, task) }, `Log of ${task.task_id}`),
    ),
  );
}
