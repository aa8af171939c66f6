// Recent operations: the runs of the DAGs that act on this cluster, or those of them that name a topic. Airflow's own
// API lists them, so that everybody sees the runs that Airflow shows them.

import { airflow, sentence, write } from "./api.js";
import { isOn, useCluster } from "./cluster_context.js";
import { Empty, Section, State } from "./components.js";
import { RunProgress } from "./dag_runs.js";
import { runPath } from "./run_paths.js";
import { RouterLink, UI, h, useEffect, useMemo, useState } from "./airflow_ui.js";
import { seconds } from "./format.js";
import { Table } from "./table.js";

const { Text } = UI;
const EVERY_MS = 15000;
// Of a topic, more runs are looked through than are shown.
const ALL = { page_limit: 100 };
const SHOWN = 15;

// Whether a run's configuration names the topic; pure.
export function names(conf, topic) {
  if (!conf || typeof conf !== "object") return false;
  const listed = Array.isArray(conf.topics) ? conf.topics : [];
  const moved = Array.isArray(conf.plan?.partitions) ? conf.plan.partitions.map((one) => one?.topic) : [];
  return conf.topic === topic || listed.includes(topic) || moved.includes(topic);
}

// {runs, problem}: the latest runs of these actions' DAGs on this cluster; null until they are read.
export function useRuns(wanted, more, every) {
  const { conn } = useCluster();
  const ids = useMemo(() => wanted.map((action) => action.dag_id).sort(), [wanted]);
  const key = `${ids.join("\n")} ${JSON.stringify(more)}`;
  const [state, setState] = useState({ runs: null, problem: null });
  useEffect(() => {
    if (ids.length === 0) return undefined;
    let timer = 0;
    let gone = false;
    const content = { dag_ids: ids, order_by: "-run_after", ...more };
    const look = async () => {
      if (!document.hidden) {
        try {
          const found = await write("POST", airflow("dags", "~", "dagRuns", "list"), content);
          if (!gone) setState({ runs: found.dag_runs ?? [], problem: null });
        } catch (problem) {
          if (!gone) setState((old) => ({ ...old, problem }));
        }
      }
      if (!gone) timer = setTimeout(look, every);
    };
    look();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [key]);
  const runs = useMemo(() => {
    const dags = new Map(wanted.map((action) => [action.dag_id, action]));
    return state.runs?.filter((run) => dags.has(run.dag_id) && isOn(conn, dags.get(run.dag_id), run.conf)) ?? null;
  }, [state, wanted, conn]);
  return { runs, problem: state.problem };
}

// `topic`: only the runs that name it.
export function Operations({ topic }) {
  const { actions } = useCluster();
  const wanted = useMemo(() => [...actions.values()], [actions]);
  const { runs, problem } = useRuns(wanted, ALL, EVERY_MS);
  const [open, setOpen] = useState("");
  const rows = useMemo(
    () => (runs ?? []).filter((run) => !topic || names(run.conf, topic)).slice(0, SHOWN),
    [runs, topic],
  );
  const columns = useMemo(() => columnsOf(open, setOpen), [open]);
  if (actions.size === 0) return null;
  return h(
    Section,
    { title: "Recent operations" },
    problem && h(Text, { color: "fg.muted", fontSize: "sm" }, sentence(problem)),
    runs === null
      ? !problem && h(Text, { color: "fg.muted" }, "Not read yet.")
      : rows.length === 0
        ? h(Empty, { title: topic ? "No recent run names this topic." : "No DAG has worked on this cluster yet." })
        : h(Table, {
            name: "Recent operations",
            columns,
            rows,
            rowKey: (row) => `${row.dag_id} ${row.dag_run_id}`,
            cards: true,
          }),
  );
}

const columnsOf = (open, setOpen) => [
  {
    id: "dag",
    label: "Operation",
    width: "18rem",
    cell: (row) => h(RouterLink, { to: runPath({ dag_id: row.dag_id, run_id: row.dag_run_id }) }, row.dag_id),
  },
  { id: "state", label: "State", width: "7rem", cell: (row) => h(State, { state: row.state }) },
  { id: "when", label: "Began", width: "13rem", cell: (row) => began(row) },
  { id: "took", label: "Took", width: "7rem", cell: (row) => took(row) },
  {
    id: "who",
    label: "By",
    width: "9rem",
    cell: (row) => row.triggering_user_name ?? h("span", { "data-quiet": "" }, row.run_type ?? "–"),
  },
  { id: "result", label: "Result", least: 16, cell: (row) => h(Result, { row, open, setOpen }) },
];

export function began({ start_date, run_after }) {
  const at = start_date ?? run_after;
  return at ? new Date(at).toLocaleString() : "–";
}

function took({ start_date, end_date }) {
  return start_date && end_date ? seconds((Date.parse(end_date) - Date.parse(start_date)) / 1000) : "–";
}

// What the run did is read when somebody opens it.
function Result({ row, open, setOpen }) {
  const mine = `${row.dag_id} ${row.dag_run_id}`;
  if (open === mine) return h(RunProgress, { run: { dag_id: row.dag_id, run_id: row.dag_run_id } });
  return h("button", { type: "button", style: { cursor: "pointer" }, onClick: () => setOpen(mine) }, "Show");
}
