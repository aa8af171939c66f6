// Logyard's page in Airflow's UI: the header, the navigation, and the chosen view.

import { Acls } from "./acls.js";
import { pageApi } from "./api.js";
import { Broker, Brokers } from "./brokers.js";
import { Clusters, useConnections } from "./clusters.js";
import { ClusterContext, useActions } from "./cluster_context.js";
import { Compare } from "./compare.js";
import { ActionDialog } from "./action_dialog.js";
import { Findings } from "./findings.js";
import { Group, Groups } from "./groups.js";
import { RouterLink, UI, h, useCallback, useEffect, useMemo, useRef, useState } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { Quotas } from "./quotas.js";
import { Records } from "./records.js";
import { ReplicaMap } from "./replica_map.js";
import { Reassignments } from "./reassignments.js";
import { Overview, Unreachable } from "./overview.js";
import { Health, Loading, Problem } from "./components.js";
import { useRowLinks, usePlace } from "./page_address.js";
import { SearchBox } from "./search_box.js";
import { StartedRuns } from "./dag_runs.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";
import { Users } from "./users.js";

const { Box, Code, Flex, Heading, NativeSelect, Text } = UI;

const VIEWS = {
  overview: [Overview, "Overview"],
  findings: [Findings, "Findings"],
  topics: [Topics, "Topics"],
  brokers: [Brokers, "Brokers"],
  map: [ReplicaMap, "Replica map"],
  groups: [Groups, "Groups"],
  reassignments: [Reassignments, "Reassignments"],
  acls: [Acls, "ACLs"],
  users: [Users, "Users"],
  quotas: [Quotas, "Quotas"],
  // Offered where there is more than one.
  clusters: [Clusters, "Clusters"],
  // The view of one item: its list's entry is marked in the navigation.
  topic: [Topic, "", "topics"],
  records: [Records, "", "topics"],
  compare: [Compare, "", "topics"],
  broker: [Broker, "", "brokers"],
  group: [Group, "", "groups"],
};

function Logyard() {
  const place = usePlace();
  const { conn, view } = place;
  const answer = usePolled(pageApi("overview", { conn_id: conn }));
  const actions = useActions(conn);
  const [asked, setAsked] = useState(null);
  const act = useCallback((action, values = {}) => setAsked({ action, values, key: Date.now() }), []);
  const overview = answer.data;
  const cluster = useMemo(
    () => ({ place, conn, overview, versions: overview?.versions, actions, act }),
    [place, conn, overview, actions, act],
  );
  useEffect(() => setAsked(null), [conn]);
  return h(
    ClusterContext.Provider,
    { value: cluster },
    h(
      Flex,
      {
        direction: "column",
        height: "100%",
        minHeight: "0",
        padding: "4",
        gap: "4",
        overflow: "auto",
        "data-testid": "logyard",
        onClick: useRowLinks(),
      },
      h(Header, { place, overview }),
      h(Navigation, { place }),
      h(StartedRuns),
      h(Problem, { problem: answer.problem }),
      overview && h(Unreachable, { overview }),
      h(Shown, { key: `${conn} ${view}`, view, overview, problem: answer.problem }),
      asked && h(ActionDialog, { key: asked.key, asked, close: () => setAsked(null) }),
    ),
  );
}

// Every place has its own component: nothing that was typed or requested elsewhere remains. Lists do not wait for the
// overview; only the view that shows it does.
function Shown({ view, overview, problem }) {
  const [View] = VIEWS[view];
  const whole = view === "overview";
  if (!overview && problem) return null;
  if (!overview && whole) return h(Loading, { what: "the cluster", rows: 8 });
  return h(
    Box,
    { display: "flex", flexDirection: "column", flex: "1", minHeight: whole ? undefined : "20rem" },
    h(View),
  );
}

function Header({ place, overview }) {
  return h(
    Flex,
    { alignItems: "center", justifyContent: "space-between", gap: "3", wrap: "wrap" },
    h(
      Flex,
      { alignItems: "center", gap: "3", wrap: "wrap" },
      h(Heading, { size: "xl" }, "Logyard"),
      overview && h(Health, { health: overview.health }),
      overview?.cluster_id &&
        h(
          Text,
          { color: "fg.muted", fontSize: "sm" },
          "Cluster ",
          h(Code, { size: "sm", variant: "plain" }, overview.cluster_id),
        ),
    ),
    h(
      Flex,
      { gap: "3", alignItems: "center", wrap: "wrap", width: { base: "full", md: "auto" } },
      h(SearchBox, { key: place.conn, place }),
      h(Connections, { place }),
    ),
  );
}

function Connections({ place }) {
  const known = (useConnections() ?? []).map((connection) => connection.conn_id);
  const all = known.includes(place.conn) ? known : [place.conn, ...known];
  if (all.length < 2) return h(Text, { color: "fg.muted", fontSize: "sm" }, `Connection ${place.conn}`);
  return h(
    Flex,
    { alignItems: "center", gap: "2", width: { base: "full", sm: "auto" } },
    h(Text, { as: "label", htmlFor: "logyard-connection", fontSize: "sm", color: "fg.muted" }, "Connection"),
    h(
      NativeSelect.Root,
      { size: "sm", width: { base: "auto", sm: "16rem" }, flex: { base: "1", sm: "none" }, minWidth: "0" },
      h(
        NativeSelect.Field,
        {
          id: "logyard-connection",
          value: place.conn,
          onChange: (event) =>
            place.stay({ conn_id: event.target.value, topic: "", group: "", broker: "", view: "" }, { replace: false }),
        },
        all.map((name) => h("option", { key: name, value: name }, name)),
      ),
      h(NativeSelect.Indicator),
    ),
  );
}

const LINK = {
  paddingX: "3",
  paddingY: "2",
  fontSize: "sm",
  fontWeight: "medium",
  color: "fg.muted",
  borderBottomWidth: "2px",
  borderColor: "transparent",
  marginBottom: "-1px",
  whiteSpace: "nowrap",
  _hover: { color: "fg" },
  "&[aria-current=page]": { color: "fg", borderColor: "border.info" },
};

function Navigation({ place }) {
  const at = place.view === "compare" ? place.get("of") || "topics" : (VIEWS[place.view][2] ?? place.view);
  const bar = useRef(null);
  const several = (useConnections() ?? []).length > 1;
  // On a phone the bar is scrolled.
  useEffect(() => {
    bar.current?.querySelector("[aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at]);
  return h(
    Flex,
    {
      ref: bar,
      as: "nav",
      "aria-label": "Logyard",
      borderBottomWidth: "1px",
      borderColor: "border",
      overflowX: "auto",
      flexShrink: "0",
      css: { "& > a": LINK },
    },
    Object.entries(VIEWS)
      .filter(([view, [, label]]) => label && (view !== "clusters" || several || at === view))
      .map(([view, [, label]]) =>
        h(
          RouterLink,
          {
            key: view,
            to: place.to({ view: view === "overview" ? "" : view }),
            "aria-current": at === view ? "page" : undefined,
          },
          label,
        ),
      ),
  );
}

globalThis.Logyard = Logyard;
// Airflow takes this name where a plugin gives the view another one.
globalThis.AirflowPlugin = Logyard;
export default Logyard;
