// What a task did: the sentence and the small table that its operator keeps as the XCom "outcome".

import { airflow } from "./api.js";
import { number, plural } from "./format.js";
import { UI, h } from "./airflow_ui.js";
import { usePolled } from "./polling.js";

const { Box, Flex, Text } = UI;

const STYLE = {
  "& th, & td": { paddingInlineEnd: "4", paddingBlock: "0.5", textAlign: "start", verticalAlign: "top" },
  "& th": { color: "fg.muted", fontWeight: "normal" },
  "& [data-end]": { textAlign: "end", fontVariantNumeric: "tabular-nums" },
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

export function hasEnded(task) {
  return task.state === "success" || task.state === "failed";
}

export function Outcome({ run, task }) {
  const where = airflow("dags", run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id, "xcomEntries");
  // Tasks of others have none, and the browser writes down each request for what is not there: so the keys are asked
  // for first.
  // A job on several topics of which some failed has told what became of the others.
  const keys = usePolled(hasEnded(task) ? `${where}?map_index=${task.map_index}` : "", 0);
  const has = (keys.data?.xcom_entries ?? []).some((entry) => entry.key === "outcome");
  const found = usePolled(has ? `${where}/outcome?map_index=${task.map_index}&deserialize=false` : "", 0);
  const outcome = read(found.data?.value);
  if (!outcome) return null;
  return h(
    Flex,
    { direction: "column", gap: "2", fontSize: "sm", "data-testid": "outcome" },
    h(Text, { wordBreak: "break-word" }, outcome.sentence),
    outcome.rows.length > 0 && h(Rows, { outcome }),
  );
}

function Rows({ outcome: { columns, rows, more } }) {
  return h(
    Box,
    { css: STYLE, overflow: "auto", maxHeight: "16rem", tabIndex: 0, role: "region", "aria-label": "What was done" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, columns.map((name, index) => h("th", { key: index, scope: "col" }, name)))),
      h(
        "tbody",
        null,
        rows.map((row, index) => h("tr", { key: index }, row.map((cell, at) => h(Cell, { key: at, cell })))),
      ),
    ),
    more > 0 && h(Text, { color: "fg.muted" }, `… and ${plural(more, "row")} more`),
  );
}

function Cell({ cell }) {
  if (typeof cell === "number") return h("td", { "data-end": "" }, number(cell));
  return h("td", null, cell === null ? "–" : String(cell));
}
