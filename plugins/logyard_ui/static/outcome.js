// What a task did: the sentence and the small table that its operator keeps as the XCom "outcome".

import { airflow } from "./api.js";
import { number, partitionOf, plural } from "./format.js";
import { UI, h } from "./airflow_ui.js";
import { Failure } from "./failure.js";
import { usePolled } from "./polling.js";

const { Box, Flex, Text } = UI;

// Doubled: it may stand in a cell of another table, whose style is not for this one.
const STYLE = {
  "&& table": { width: "auto", tableLayout: "auto", wordBreak: "normal" },
  "&& th, && td": {
    paddingInline: "0",
    paddingInlineEnd: "4",
    paddingBlock: "0.5",
    height: "auto",
    textAlign: "start",
    verticalAlign: "top",
    border: "0",
  },
  "&& th": { position: "static", bg: "transparent", color: "fg.muted", fontWeight: "normal" },
  "&& [data-end]": { textAlign: "end", fontVariantNumeric: "tabular-nums" },
};

// {sentence, columns, rows, rows_in_all} of a task that has ended; null for another's value.
export function read(value) {
  const found = typeof value === "string" ? parsed(value) : value;
  if (typeof found !== "object" || found === null || typeof found.sentence !== "string") return null;
  const rows = Array.isArray(found.rows) ? found.rows.filter(Array.isArray) : [];
  const columns = Array.isArray(found.columns) ? found.columns.map(String) : [];
  return { sentence: found.sentence, columns, rows, more: Math.max((found.rows_in_all ?? 0) - rows.length, 0) };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// A task that was skipped tells why.
export function hasEnded(task) {
  return ["success", "failed", "skipped"].includes(task.state);
}

// {outcome, known} of a task; null where it has none, or none is known yet.
function useOutcome(run, task) {
  const where = airflow("dags", run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id, "xcomEntries");
  // Tasks of others have none, and the browser writes down each request for what is not there: so the keys are asked
  // for first.
  // A job on several topics of which some failed has told what became of the others.
  const keys = usePolled(hasEnded(task) ? `${where}?map_index=${task.map_index}` : "", 0);
  const has = (keys.data?.xcom_entries ?? []).some((entry) => entry.key === "outcome");
  const found = usePolled(has ? `${where}/outcome?map_index=${task.map_index}&deserialize=false` : "", 0);
  const known = hasEnded(task) && (has ? Boolean(found.data ?? found.problem) : Boolean(keys.data ?? keys.problem));
  return { outcome: read(found.data?.value), known };
}

export function Outcome({ run, task }) {
  const { outcome } = useOutcome(run, task);
  if (!outcome) return null;
  return h(
    Flex,
    { direction: "column", gap: "2", fontSize: "sm", "data-testid": "outcome" },
    h(Text, { wordBreak: "break-word" }, outcome.sentence),
    outcome.rows.length > 0 && h(Rows, { outcome }),
  );
}

// Of so many tasks of a run it is told what they did.
const TASKS = 5;

// What a run did, in short: the sentences of its jobs, and of their tables the rows about the topic; what is known of
// those that failed and could not tell.
export function Told({ run, topic }) {
  const tasks = usePolled(`${airflow("dags", run.dag_id, "dagRuns", run.run_id)}/taskInstances`, 0);
  const ended = (tasks.data?.task_instances ?? []).filter(hasEnded);
  // Those that deal topics to jobs say nothing of the topics.
  const mapped = ended.some((task) => task.map_index >= 0);
  const jobs = mapped ? ended.filter((task) => task.map_index >= 0 || task.state === "failed") : ended;
  return h(
    Flex,
    { direction: "column", gap: "1" },
    jobs
      .slice(0, TASKS)
      .map((task) => h(Sentence, { key: `${task.task_id} ${task.map_index}`, run, task, topic })),
    jobs.length > TASKS && h(Text, { color: "fg.muted" }, `… and ${plural(jobs.length - TASKS, "job")} more`),
    tasks.data && run.state === "failed" && !ended.some((task) => task.state === "failed") && h(NoTaskFailed),
  );
}

// A run that failed though none of its tasks did.
export function NoTaskFailed() {
  const sentence = "No task of it failed: its time was up, or somebody marked it as failed.";
  return h(Text, { color: "fg.error", fontSize: "sm", "data-testid": "failure" }, sentence);
}

function Sentence({ run, task, topic }) {
  const { outcome, known } = useOutcome(run, task);
  if (!outcome) return known && task.state === "failed" ? h(Failure, { run, task }) : null;
  const rows = topic ? outcome.rows.filter((row) => isAbout(row, topic)) : [];
  return h(
    Box,
    { fontSize: "sm" },
    h(Text, { wordBreak: "break-word" }, outcome.sentence),
    rows.length > 0 && h(Rows, { outcome: { columns: outcome.columns, rows, more: 0 } }),
  );
}

// Whether a row's first cell is the topic or one of its partitions; pure.
export function isAbout([first], topic) {
  return first === topic || (typeof first === "string" && partitionOf(first)[0] === topic);
}

function Rows({ outcome: { columns, rows, more } }) {
  return h(
    Box,
    { css: STYLE, overflow: "auto", maxHeight: "16rem", tabIndex: 0, role: "region", "aria-label": "What was done" },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h("tr", null, columns.map((name, index) => h("th", { key: index, scope: "col", ...side(rows, index) }, name))),
      ),
      h(
        "tbody",
        null,
        rows.map((row, index) => h("tr", { key: index }, row.map((cell, at) => h(Cell, { key: at, cell })))),
      ),
    ),
    more > 0 && h(Text, { color: "fg.muted" }, `… and ${plural(more, "row")} more`),
  );
}

// A heading stands where its column's cells do: numbers to the right.
function side(rows, index) {
  return typeof rows[0]?.[index] === "number" ? { "data-end": "" } : {};
}

function Cell({ cell }) {
  if (typeof cell === "number") return h("td", { "data-end": "" }, number(cell));
  return h("td", null, cell === null ? "–" : String(cell));
}
