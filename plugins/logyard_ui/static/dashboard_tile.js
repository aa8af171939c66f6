// The dashboard's tile: the health of each cluster, one line for each connection; no tile where there is none.

import { pageApi } from "./api.js";
import { number, outageSentence } from "./format.js";
import { Fragment, RouterLink, UI, h } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { Health, Loading } from "./components.js";
import { PAGE, search } from "./page_address.js";

const { Box, Flex, Heading, Skeleton, Text } = UI;
const CONNECTIONS_MS = 60000;
// A dashboard is left open for days: it polls less often than the page.
const EVERY_MS = 10000;
const SHOWN = 8;

function LogyardTile() {
  const { data, problem } = usePolled(pageApi("connections"), CONNECTIONS_MS);
  const connections = data?.connections ?? [];
  // Without a connection there is no tile; errors of a cluster appear in its line. While it loads its place is kept.
  if (connections.length === 0 && (data || problem)) return null;
  return h(
    Box,
    { order: 4, as: "section", "aria-label": "Logyard clusters", width: "full" },
    h(Heading, { as: "h2", size: "xs", marginBottom: "2", color: "fg.muted" }, "Clusters"),
    h(
      Flex,
      { direction: "column", borderWidth: "1px", borderRadius: "md", overflow: "hidden" },
      !data && h(Box, { padding: "2.5" }, h(Loading, { what: "clusters", rows: 1 })),
      connections.slice(0, SHOWN).map((connection) => h(Line, { key: connection.conn_id, conn: connection.conn_id })),
      connections.length > SHOWN &&
        h(Text, { padding: "2", color: "fg.muted", fontSize: "sm" }, `and ${connections.length - SHOWN} more`),
    ),
  );
}

function Line({ conn }) {
  const { data, problem } = usePolled(pageApi("overview", { conn_id: conn }), EVERY_MS);
  return h(
    Flex,
    {
      asChild: true,
      alignItems: "center",
      gap: "4",
      paddingX: "4",
      paddingY: "2.5",
      wrap: "wrap",
      _notFirst: { borderTopWidth: "1px" },
      _hover: { bg: "bg.subtle" },
    },
    h(
      RouterLink,
      { to: { pathname: PAGE, search: search({ conn_id: conn }) } },
      data || problem
        ? h(Health, { health: data?.health ?? "unreachable" })
        : h(Skeleton, { width: "5.5rem", height: "6", role: "status", "aria-label": `Loading ${conn}` }),
      h(Text, { fontWeight: "semibold" }, conn),
      h(Text, { color: "fg.muted", fontSize: "sm", flex: "1", minWidth: "12rem", truncate: true }, said(data, problem)),
      data && h(Counts, { data }),
    ),
  );
}

// While the cluster does not answer nobody can know them.
function Counts({ data }) {
  const now = (value) => (data.reachable ? number(value) : "–");
  const alive = data.controller?.alive;
  return h(
    Fragment,
    null,
    h(Count, {
      label: "Controller",
      value: !data.reachable ? "–" : alive ? data.controller.id : "none",
      bad: data.reachable && !alive,
    }),
    h(Count, { label: "Brokers", value: now(data.brokers?.alive) }),
    h(Count, {
      label: "Under-replicated",
      value: now(data.under_replicated),
      bad: data.reachable && data.under_replicated > 0,
    }),
    h(Count, { label: "Offline", value: now(data.offline), bad: data.reachable && data.offline > 0 }),
  );
}

function said(data, problem) {
  if (problem) return problem.message;
  if (!data) return "";
  return data.reachable ? (data.findings ?? []).join(" · ") : outageSentence(data);
}

function Count({ label, value, bad }) {
  return h(
    Flex,
    { gap: "1.5", fontSize: "sm" },
    h(Text, { color: "fg.muted" }, label),
    h(Text, { fontWeight: "semibold", color: bad ? "fg.error" : undefined }, value),
  );
}

globalThis["Logyard health"] = LogyardTile;
globalThis.LogyardTile = LogyardTile;
globalThis.AirflowPlugin = LogyardTile;
export default LogyardTile;
