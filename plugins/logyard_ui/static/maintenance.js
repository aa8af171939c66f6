// The last audit, compaction and export of the cluster, or of a topic, with what each found or did.

import { airflow, write } from "./api.js";
import { useCluster } from "./cluster_context.js";
import { Section, State } from "./components.js";
import { runPath } from "./run_paths.js";
import { RouterLink, UI, h, useEffect, useMemo, useState } from "./airflow_ui.js";
import { began, names, useRuns } from "./operations.js";
import { Told } from "./outcome.js";
import { Table } from "./table.js";

const { Text } = UI;
const EVERY_MS = 60000;
// Runs of one DAG that are looked through: an hourly export of other topics hides that of this one for two days.
const READ = 50;
const JOBS = [
  ["audit_replicas", "Audit"],
  ["compact_segments", "Compaction"],
  ["export_segments", "Export"],
];
const ENDED = { states: ["success", "failed"], page_limit: READ };
const WORKED = ["success", "failed"];

// Whether the run was about the topic: it names it, or no topic; pure.
export function concerns(conf, topic) {
  return names(conf, topic) || !conf?.topics?.length;
}

export function Maintenance({ topic }) {
  const { actions } = useCluster();
  // The jobs are fixed, so these are the same hooks each time.
  const last = JOBS.map(([action, label]) => ({ action, label, ...useLast(action, topic) }));
  const rows = last.filter(({ action }) => actions.has(action));
  const columns = useMemo(() => columnsOf(topic), [topic]);
  if (rows.length === 0) return null;
  return h(
    Section,
    { title: "Last audit, compaction and export", "data-testid": "maintenance" },
    h(Table, {
      name: "Last audit, compaction and export",
      columns,
      rows,
      rowKey: (row) => row.action,
      cards: true,
    }),
  );
}

// `run`: undefined where there is none; `known`: whether that is known.
function useLast(action, topic) {
  const { actions } = useCluster();
  const wanted = useMemo(() => [actions.get(action)].filter(Boolean), [actions, action]);
  const { runs, problem } = useRuns(wanted, ENDED, EVERY_MS);
  const ended = useMemo(
    () => runs?.filter((one) => ENDED.states.includes(one.state) && (!topic || concerns(one.conf, topic))),
    [runs, topic],
  );
  const worked = useWorked(ended);
  const run = ended?.find((one) => one.state === "failed" || worked?.has(one.dag_run_id));
  return { run, known: worked !== null || problem !== null };
}

// Of one DAG's runs that ended well the ids of those in which a task did something; null while that is not known. An
// hourly export without a destination skips its tasks, ends well, and has nothing to tell.
function useWorked(runs) {
  const asked = (runs ?? []).filter((run) => run.state === "success");
  const [worked, setWorked] = useState(null);
  const ids = asked.map((run) => run.dag_run_id);
  // One that was cleared may have done something since.
  const key = runs && asked.map((run) => `${run.dag_run_id} ${run.end_date}`).join("\n");
  useEffect(() => {
    if (!runs) return undefined;
    let gone = false;
    const tell = (found) => !gone && setWorked(new Set(found));
    // The latest first, so the latest run that worked is among them however many tasks each has.
    const content = { dag_ids: [asked[0]?.dag_id], dag_run_ids: ids, state: WORKED, order_by: "-start_date" };
    if (ids.length === 0) tell([]);
    else
      write("POST", airflow("dags", "~", "dagRuns", "~", "taskInstances", "list"), content).then(
        (found) => tell((found.task_instances ?? []).map((task) => task.dag_run_id)),
        () => tell(ids),
      );
    return () => {
      gone = true;
    };
  }, [key]);
  return worked;
}

const of =
  (part) =>
  ({ run, known }) =>
    run ? part(run) : h("span", { "data-quiet": "" }, known ? "–" : "…");

const columnsOf = (topic) => [
  { id: "what", label: "What", width: "8rem", cell: (row) => row.label },
  {
    id: "when",
    label: "Began",
    width: "13rem",
    cell: of((run) => h(RouterLink, { to: runPath({ dag_id: run.dag_id, run_id: run.dag_run_id }) }, began(run))),
  },
  { id: "state", label: "State", width: "7rem", cell: of((run) => h(State, { state: run.state })) },
  { id: "result", label: "Result", least: 20, cell: of((run) => h(Result, { run, topic })) },
];

function Result({ run, topic }) {
  return h(
    "div",
    null,
    topic && !names(run.conf, topic) && h(Text, { color: "fg.muted", fontSize: "xs" }, "A run over all topics."),
    h(Told, { key: run.end_date, run: { dag_id: run.dag_id, run_id: run.dag_run_id, state: run.state }, topic }),
  );
}
