// The cluster that is looked at, for every part of the page: one overview, the actions its user may start, one dialog.

import { ours } from "./api.js";
import { React, useMemo } from "./airflow_ui.js";
import { useLive, useVersioned } from "./polling.js";

export const ClusterContext = React.createContext(null);

// {place, conn, overview, versions, actions, act}: `act(action, values)` opens that action's dialog.
export function useCluster() {
  return React.useContext(ClusterContext);
}

// One of our routes on this cluster, asked for every so often.
export function useRoute(path, query = {}, every = undefined) {
  const { conn } = useCluster();
  return useLive(path ? ours(path, { conn_id: conn, ...query }) : "", every);
}

// One of our lists, asked for again when the overview says that it has changed.
export function useList(path) {
  const { conn, versions } = useCluster();
  return useVersioned(ours(path, { conn_id: conn }), versions?.[path] ?? "");
}

const ACTIONS_MS = 60000;

// action → {dag_id, paused, may_run}, of those DAGs that act on this connection.
export function useActions(conn) {
  const { data } = useLive(ours("actions", { conn_id: conn }), ACTIONS_MS);
  return useMemo(() => new Map((data?.actions ?? []).map((action) => [action.action, action])), [data]);
}
