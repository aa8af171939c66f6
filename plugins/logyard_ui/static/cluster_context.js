// The chosen cluster, for every part of the page: its overview, the actions that the user may start, their dialog.

import { pageApi } from "./api.js";
import { React, useMemo } from "./airflow_ui.js";
import { usePolled, useVersioned } from "./polling.js";

export const ClusterContext = React.createContext(null);

// {place, conn, overview, versions, actions, act}: `act(action, values)` opens that action's dialog.
export function useCluster() {
  return React.useContext(ClusterContext);
}

// One of the page's routes on this cluster, polled.
export function useRoute(path, query = {}, every = undefined) {
  const { conn } = useCluster();
  return usePolled(path ? pageApi(path, { conn_id: conn, ...query }) : "", every);
}

// One of the page's lists, requested again when the overview says that it has changed.
export function useList(path) {
  const { conn, versions } = useCluster();
  return useVersioned(pageApi(path, { conn_id: conn }), versions?.[path] ?? "");
}

const ACTIONS_MS = 60000;

// action → {dag_id, paused, may_run, default_conn_id}, for the DAGs that act on this connection; `records`: whether the
// user may look at records.
export function useActions(conn) {
  const { data } = usePolled(pageApi("actions", { conn_id: conn }), ACTIONS_MS);
  return useMemo(() => {
    const found = new Map((data?.actions ?? []).map((action) => [action.action, action]));
    return Object.assign(found, { records: data?.records === true });
  }, [data]);
}

// The configuration of a run on this cluster: where the DAG's form chooses among clusters, it names this one. Pure.
export function confOn(conn, dag, conf) {
  return dag?.default_conn_id ? { ...conf, logyard_conn_id: conn } : conf;
}

// Whether a run of that DAG works on this cluster; pure.
export function isOn(conn, dag, conf) {
  return !dag?.default_conn_id || (conf?.logyard_conn_id ?? dag.default_conn_id) === conn;
}
