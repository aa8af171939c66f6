// Where Airflow's UI shows a run and a task; pure.

export function runPath({ dag_id, run_id }) {
  return `/dags/${encodeURIComponent(dag_id)}/runs/${encodeURIComponent(run_id)}`;
}

export function taskPath(run, task) {
  const mapped = task.map_index >= 0 ? `/mapped/${task.map_index}` : "";
  return `${runPath(run)}/tasks/${encodeURIComponent(task.task_id)}${mapped}`;
}
