// Logyard's view in Airflow's UI. React and ReactRouterDOM come from the host, so nothing has to be built.
// Names and values of a cluster only ever become text nodes: React.createElement escapes them, and nothing
// here sets HTML.

const React = globalThis.React;
const { createElement: h, useEffect, useMemo, useState } = React;

const DEFAULT_CONNECTION = "logyard_default";
const EVERY_MS = 3000;
const ROWS = 200;

const border = "1px solid var(--chakra-colors-border, #8884)";
const style = {
  page: { padding: "1rem", overflow: "auto", height: "100%", color: "inherit" },
  bar: { display: "flex", gap: "0.75rem", alignItems: "center", flexWrap: "wrap", marginBottom: "1rem" },
  input: { border, borderRadius: "4px", padding: "0.25rem 0.5rem", background: "transparent", color: "inherit" },
  tiles: { display: "flex", gap: "0.75rem", flexWrap: "wrap", marginBottom: "1rem" },
  tile: { border, borderRadius: "6px", padding: "0.5rem 0.75rem", minWidth: "8rem" },
  big: { fontSize: "1.4rem", fontWeight: 600 },
  bad: { color: "var(--chakra-colors-fg-error, #c53030)" },
  table: { borderCollapse: "collapse", width: "100%", marginBottom: "1.5rem", fontSize: "0.9rem" },
  cell: { borderBottom: border, padding: "0.25rem 0.5rem", textAlign: "left", verticalAlign: "top" },
  heading: { fontSize: "1.1rem", fontWeight: 600, margin: "0.5rem 0" },
  link: { background: "none", border: "none", padding: 0, color: "inherit", textDecoration: "underline", cursor: "pointer" },
};

function address(path, query) {
  const url = new URL(`logyard/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url;
}

function useCluster(connection) {
  const [state, setState] = useState({ cluster: null, problem: "" });
  useEffect(() => {
    let ended = false;
    let timer = 0;
    async function look() {
      if (!document.hidden) {
        try {
          const answer = await fetch(address("api/cluster", { conn_id: connection }), { credentials: "same-origin" });
          const body = await answer.json();
          if (!ended) {
            setState(answer.ok ? { cluster: body, problem: "" } : (old) => ({ ...old, problem: said(body, answer.status) }));
          }
        } catch (problem) {
          if (!ended) setState((old) => ({ ...old, problem: String(problem) }));
        }
      }
      if (!ended) timer = setTimeout(look, EVERY_MS);
    }
    setState({ cluster: null, problem: "" });
    look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [connection]);
  return state;
}

function said(body, status) {
  return typeof body.detail === "string" ? body.detail : `The server answered ${status}`;
}

function Tile({ label, value, bad }) {
  return h("div", { style: style.tile }, h("div", null, label), h("div", { style: bad ? { ...style.big, ...style.bad } : style.big }, String(value)));
}

function Table({ columns, rows, name }) {
  return h(
    "table",
    { style: style.table, "aria-label": name },
    h("thead", null, h("tr", null, columns.map((column) => h("th", { key: column, style: style.cell, scope: "col" }, column)))),
    h("tbody", null, rows.map((row) => h("tr", { key: row.key }, row.cells.map((cell, index) => h("td", { key: index, style: style.cell }, cell))))),
  );
}

function Overview({ cluster }) {
  const partitions = cluster.topics.reduce((sum, topic) => sum + topic.partitions.length, 0);
  const alive = cluster.brokers.some((broker) => broker.id === cluster.controller);
  return h(
    "div",
    { style: style.tiles },
    h(Tile, { label: "Controller", value: alive ? cluster.controller : "none", bad: !alive }),
    h(Tile, { label: "Brokers", value: cluster.brokers.length }),
    h(Tile, { label: "Topics", value: cluster.topics.length }),
    h(Tile, { label: "Partitions", value: partitions }),
    h(Tile, { label: "Under-replicated", value: cluster.under_replicated.length, bad: cluster.under_replicated.length > 0 }),
    h(Tile, { label: "Offline", value: cluster.offline.length, bad: cluster.offline.length > 0 }),
    h(Tile, { label: "Moving", value: cluster.reassignments.length }),
  );
}

function Brokers({ cluster }) {
  const rows = cluster.brokers.map((broker) => ({
    key: broker.id,
    cells: [
      broker.id === cluster.controller ? `${broker.id} (controller)` : String(broker.id),
      `${broker.host}:${broker.port}`,
      broker.rack ?? "",
      String(broker.leaders),
      String(broker.replicas),
    ],
  }));
  return h(
    React.Fragment,
    null,
    h("h2", { style: style.heading }, "Brokers"),
    h(Table, { name: "Brokers", columns: ["Broker", "Address", "Rack", "Leaders", "Replicas"], rows }),
  );
}

function Topics({ cluster, open }) {
  const [wanted, setWanted] = useState("");
  const found = useMemo(() => cluster.topics.filter((topic) => topic.name.includes(wanted)), [cluster, wanted]);
  const rows = found.slice(0, ROWS).map((topic) => {
    const under = topic.partitions.filter((partition) => partition.under_replicated).length;
    return {
      key: topic.name,
      cells: [
        h("button", { type: "button", style: style.link, onClick: () => open(topic.name) }, topic.name),
        String(topic.partitions.length),
        String(Math.max(0, ...topic.partitions.map((partition) => partition.replicas.length))),
        h("span", { style: under ? style.bad : null }, String(under)),
      ],
    };
  });
  return h(
    React.Fragment,
    null,
    h("h2", { style: style.heading }, "Topics"),
    h("input", {
      style: { ...style.input, marginBottom: "0.5rem" },
      placeholder: "Search",
      "aria-label": "Search topics",
      value: wanted,
      onChange: (event) => setWanted(event.target.value),
    }),
    h(Table, { name: "Topics", columns: ["Topic", "Partitions", "Replication factor", "Under-replicated"], rows }),
    found.length > ROWS ? h("p", null, `${found.length - ROWS} more: search to narrow them down`) : null,
  );
}

function Topic({ topic, close }) {
  const rows = topic.partitions.map((partition) => ({
    key: partition.partition,
    cells: [
      String(partition.partition),
      h("span", { style: partition.leader < 0 ? style.bad : null }, partition.leader < 0 ? "none" : String(partition.leader)),
      String(partition.leader_epoch),
      partition.replicas.join(", "),
      h("span", { style: partition.under_replicated ? style.bad : null }, partition.isr.join(", ")),
    ],
  }));
  return h(
    React.Fragment,
    null,
    h("button", { type: "button", style: style.link, onClick: close }, "All topics"),
    h("h2", { style: style.heading }, topic.name),
    topic.topic_id ? h("p", null, `Id ${topic.topic_id}`) : null,
    h(Table, { name: "Partitions", columns: ["Partition", "Leader", "Leader epoch", "Replicas", "ISR"], rows }),
  );
}

function Logyard() {
  const asked = new URLSearchParams(globalThis.location.search);
  const [connection, setConnection] = useState(asked.get("conn_id") || DEFAULT_CONNECTION);
  const [typed, setTyped] = useState(connection);
  const [name, setName] = useState(asked.get("topic") || "");
  const { cluster, problem } = useCluster(connection);
  const topic = cluster ? cluster.topics.find((candidate) => candidate.name === name) : null;
  return h(
    "div",
    { style: style.page },
    h(
      "form",
      {
        style: style.bar,
        onSubmit: (event) => {
          event.preventDefault();
          setConnection(typed.trim() || DEFAULT_CONNECTION);
        },
      },
      h("strong", null, "Logyard"),
      h("input", { style: style.input, "aria-label": "Connection", value: typed, onChange: (event) => setTyped(event.target.value) }),
      cluster ? h("span", null, `cluster ${cluster.cluster_id}`) : null,
    ),
    problem ? h("p", { style: style.bad, role: "alert" }, problem) : null,
    !cluster && !problem ? h("p", null, "Looking…") : null,
    cluster ? h(Overview, { cluster }) : null,
    cluster && topic ? h(Topic, { topic, close: () => setName("") }) : null,
    cluster && !topic ? h(Brokers, { cluster }) : null,
    cluster && !topic ? h(Topics, { cluster, open: setName }) : null,
  );
}

globalThis.Logyard = Logyard;
