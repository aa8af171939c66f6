// Logyard's view in Airflow's UI: the frame, its navigation, and which view is shown.

import { ours } from "./api.js";
import { Broker, Brokers } from "./brokers.js";
import { ClusterContext, useActions } from "./cluster_context.js";
import { ActionDialog } from "./action_dialog.js";
import { Group, Groups } from "./groups.js";
import { RouterLink, UI, h, useCallback, useEffect, useMemo, useState } from "./airflow_ui.js";
import { useLive } from "./polling.js";
import { ReplicaMap } from "./replica_map.js";
import { Reassignments } from "./reassignments.js";
import { Overview, Unreachable } from "./overview.js";
import { Health, Loading, Problem } from "./components.js";
import { useFollowing, usePlace } from "./page_address.js";
import { Started } from "./dag_runs.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";

const { Box, Code, Flex, Heading, NativeSelect, Text } = UI;
const CONNECTIONS_MS = 60000;

const VIEWS = {
  overview: [Overview, "Overview"],
  topics: [Topics, "Topics"],
  brokers: [Brokers, "Brokers"],
  map: [ReplicaMap, "Replica map"],
  groups: [Groups, "Groups"],
  reassignments: [Reassignments, "Reassignments"],
  // One of a list: found below the list's entry.
  topic: [Topic, "", "topics"],
  broker: [Broker, "", "brokers"],
  group: [Group, "", "groups"],
};

function Logyard() {
  const place = usePlace();
  const { conn, view } = place;
  const look = useLive(ours("overview", { conn_id: conn }));
  const actions = useActions(conn);
  const [asked, setAsked] = useState(null);
  const act = useCallback((action, values = {}) => setAsked({ action, values, key: Date.now() }), []);
  const overview = look.data;
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
        onClick: useFollowing(),
      },
      h(Header, { place, overview }),
      h(Navigation, { place }),
      h(Started),
      h(Problem, { problem: look.problem }),
      overview && h(Unreachable, { overview }),
      h(Shown, { key: `${conn} ${view}`, view, overview, problem: look.problem }),
      asked && h(ActionDialog, { key: asked.key, asked, close: () => setAsked(null) }),
    ),
  );
}

// A new place is a new view: nothing of what was typed or waited for elsewhere is left. Lists do not wait for the
// overview, only what shows it does.
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
    h(Connections, { place }),
  );
}

function Connections({ place }) {
  const { data } = useLive(ours("connections"), CONNECTIONS_MS);
  const known = (data?.connections ?? []).map((connection) => connection.conn_id);
  const all = known.includes(place.conn) ? known : [place.conn, ...known];
  if (all.length < 2) return h(Text, { color: "fg.muted", fontSize: "sm" }, `Connection ${place.conn}`);
  return h(
    Flex,
    { alignItems: "center", gap: "2" },
    h(Text, { as: "label", htmlFor: "logyard-connection", fontSize: "sm", color: "fg.muted" }, "Connection"),
    h(
      NativeSelect.Root,
      { size: "sm", width: "16rem" },
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
  const at = VIEWS[place.view][2] ?? place.view;
  return h(
    Flex,
    {
      as: "nav",
      "aria-label": "Logyard",
      borderBottomWidth: "1px",
      borderColor: "border",
      overflowX: "auto",
      flexShrink: "0",
      css: { "& > a": LINK },
    },
    Object.entries(VIEWS)
      .filter(([, [, label]]) => label)
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
// Where a plugin gives the view another name, Airflow takes this one.
globalThis.AirflowPlugin = Logyard;
export default Logyard;
