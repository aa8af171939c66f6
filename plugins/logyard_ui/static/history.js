// The history of a cluster, a topic, a group or a broker, as plots.

import { useCluster, useRoute } from "./cluster_context.js";
import { Fragment, UI, h, useMemo } from "./airflow_ui.js";
import { Empty, Loaded, Section } from "./components.js";
import { diskForecast, lagNow, plots } from "./history_plots.js";
import { Plot } from "./plot.js";

const { Box, NativeSelect, Text } = UI;
const HISTORY_MS = 60000;
const RANGES = [
  ["1", "the last hour"],
  ["6", "the last 6 hours"],
  ["24", "the last day"],
  ["168", "the last week"],
  ["720", "the last 30 days"],
];

// `kind`: cluster, topic, group or broker.
export function History({ kind, name }) {
  const { place } = useCluster();
  const asked = place.get("hours");
  const hours = RANGES.some(([one]) => one === asked) ? asked : "1";
  const answer = useRoute("history", { kind, name, hours }, HISTORY_MS);
  return h(
    Section,
    { title: "History", aside: h(Range, { hours, place }), "data-testid": "history" },
    h(Loaded, { answer, what: "the history", rows: 4 }, (data) => h(Content, { data })),
  );
}

function Range({ hours, place }) {
  return h(
    NativeSelect.Root,
    { size: "sm", width: "11rem" },
    h(
      NativeSelect.Field,
      {
        "aria-label": "Time of the history",
        value: hours,
        onChange: (event) => place.stay({ hours: event.target.value === "1" ? "" : event.target.value }),
      },
      RANGES.map(([value, label]) => h("option", { key: value, value }, label)),
    ),
    h(NativeSelect.Indicator),
  );
}

function Content({ data }) {
  const found = useMemo(() => plots(data), [data]);
  const problem = data.problem && `${data.problem[0].toUpperCase()}${data.problem.slice(1)}.`;
  if (found.length === 0)
    return h(
      Empty,
      { title: problem || "Nothing was kept of this time." },
      "Airflow's API servers look at each cluster once a minute; rates are there after two looks.",
    );
  return h(
    Fragment,
    null,
    (data.disks ?? []).map((one) =>
      h(Text, { key: one.path, marginBottom: "2", fontSize: "sm", role: "status" }, diskForecast(one)),
    ),
    data.now && h(Text, { marginBottom: "2", fontSize: "sm", role: "status" }, lagNow(data.now)),
    h(
      Box,
      { display: "grid", gap: "3", gridTemplateColumns: { base: "minmax(0, 1fr)", lg: "1fr 1fr" } },
      found.map(({ title, ...plot }) => h(Plot, { key: title, title, times: data.times, ...plot })),
    ),
    problem && h(Text, { color: "fg.muted", fontSize: "xs", marginTop: "1" }, problem),
  );
}
