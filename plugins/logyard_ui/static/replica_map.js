// Replicas by topic and broker. A cell is as dark as its share, so that an uneven distribution stands out.

import { useCluster, useList } from "./cluster_context.js";
import { number } from "./format.js";
import { RouterLink, React, UI, h, useMemo } from "./airflow_ui.js";
import { ActionButton } from "./action_button.js";
import { Empty, Loaded } from "./components.js";
import { rowLink } from "./page_address.js";
import { SkewBar } from "./skew_bar.js";
import { InternalTopics } from "./internal_topics.js";
import { Search, Table } from "./table.js";
import { useDelayedText } from "./delayed_text.js";

const { Box, Button, Flex, Text } = UI;
const WHAT = { replicas: "Replicas", leaders: "Leaders" };

export function ReplicaMap() {
  const answer = useList("replicas");
  return h(
    Flex,
    { direction: "column", gap: "4", flex: "1", minHeight: "0" },
    h(Loaded, { answer, what: "the map", rows: 12 }, (data) => h(Content, { data })),
  );
}

function Content({ data }) {
  const { place } = useCluster();
  const what = place.get("of") === "leaders" ? "leaders" : "replicas";
  const [typed, setTyped] = useDelayedText(place, "q");
  const wanted = React.useDeferredValue(typed);
  const internal = place.get("internal") === "1";
  const rows = useMemo(() => asRows(data, what), [data, what]);
  const found = useMemo(
    () =>
      rows.filter(
        (row) => (internal || !row.internal) && row.name.toLowerCase().includes(wanted.trim().toLowerCase()),
      ),
    [rows, wanted, internal],
  );
  if (data.brokers.length === 0) return h(Empty, { title: "No broker has replicas yet." });
  return h(
    React.Fragment,
    null,
    h(Totals, { data, what }),
    h(
      Flex,
      { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
      h(
        Search,
        { label: "Search topics", value: typed, onChange: setTyped },
        h(
          Flex,
          { gap: "1", role: "group", "aria-label": "What is counted" },
          Object.entries(WHAT).map(([id, label]) =>
            h(
              Button,
              {
                key: id,
                size: "xs",
                variant: what === id ? "solid" : "outline",
                "aria-pressed": what === id,
                onClick: () => place.stay({ of: id === "leaders" ? id : "" }),
              },
              label,
            ),
          ),
        ),
        h(InternalTopics),
        h(
          Text,
          { color: "fg.muted", fontSize: "sm" },
          "A cell’s colour shows its broker’s share of the topic: in an even row all cells look alike.",
        ),
      ),
      h(
        ActionButton,
        { action: "reassign_replicas", to: place.to({ view: "reassignments", balance: 1, preview: 1 }), plain: true },
        "Plan an even distribution",
      ),
    ),
    h(Cells, { data, found, what }),
  );
}

function Totals({ data, what }) {
  const { place } = useCluster();
  const totals = data.total[what];
  const mean = data.mean[what];
  return h(
    Box,
    { display: "grid", gap: "3", gridTemplateColumns: "repeat(auto-fill, minmax(13rem, 1fr))" },
    data.brokers.slice(0, 64).map((broker, index) =>
      h(
        Box,
        {
          key: broker,
          borderWidth: "1px",
          borderColor: data.alive[index] ? "border" : "border.error",
          borderRadius: "md",
          padding: "3",
        },
        h(
          Flex,
          { justifyContent: "space-between", alignItems: "baseline", gap: "3", marginBottom: "1.5", fontSize: "sm" },
          h(
            RouterLink,
            { to: place.to({ view: "broker", broker }) },
            h(Text, { fontWeight: "semibold", whiteSpace: "nowrap" }, `Broker ${broker}`),
          ),
          h(
            Text,
            {
              color: data.alive[index] ? "fg.muted" : "fg.error",
              truncate: true,
              title: data.racks?.[index] ?? undefined,
            },
            [data.alive[index] ? null : "not alive", data.racks?.[index], number(totals[index])]
              .filter((part) => part !== null && part !== undefined)
              .join(" · "),
          ),
        ),
        h(
          Box,
          { fontSize: "xs" },
          h(SkewBar, { value: mean > 0 ? totals[index] / mean - 1 : null, label: `${WHAT[what]} of broker ${broker}` }),
        ),
      ),
    ),
  );
}

function Cells({ data, found, what }) {
  const { place, conn } = useCluster();
  const columns = useMemo(() => {
    const few = data.brokers.length <= 8;
    const heads = data.brokers.map((broker, index) => ({
      id: `b${broker}`,
      label: few ? `Broker ${broker}` : String(broker),
      middle: true,
      width: few ? "8rem" : "4.5rem",
      value: (row) => row.counts[index],
      cell: (row) =>
        h(
          "span",
          {
            style: shade(row.counts[index], row.sum, data.brokers.length),
            title: `${row.name}: ${row.counts[index]} of ${row.sum} on broker ${broker}`,
          },
          row.counts[index] || "",
        ),
    }));
    return [
      {
        id: "name",
        label: "Topic",
        width: "20rem",
        value: (row) => row.name,
        cell: (row) => rowLink(place.to({ view: "topic", topic: row.name }), row.name),
      },
      {
        id: "spread",
        label: "Most − least",
        end: true,
        width: "7.5rem",
        value: (row) => row.spread,
        cell: (row) => row.spread,
      },
      ...heads,
    ];
  }, [data.brokers, conn]);
  return h(Table, {
    name: `${WHAT[what]} by topic and broker`,
    columns,
    rows: found,
    rowKey: (row) => row.name,
    order: place.get("sort") || "-spread",
    onOrder: (sort) => place.stay({ sort }),
    fill: true,
    empty: "No topic's name matches.",
  });
}

function asRows(data, what) {
  return data.topics.slice(0, data[what].length).map((name, index) => {
    const counts = data[what][index];
    return {
      name,
      internal: data.internal[index] === 1,
      counts,
      sum: counts.reduce((sum, value) => sum + value, 0),
      spread: Math.max(...counts) - Math.min(...counts),
    };
  });
}

// Even shares are a calm middle tone; twice an even share is the darkest.
function shade(value, sum, brokers) {
  const even = sum / brokers;
  const share = value === 0 || even === 0 ? 0 : Math.min(1, value / (2 * even));
  return {
    display: "block",
    textAlign: "center",
    borderRadius: "3px",
    lineHeight: "24px",
    minHeight: "24px",
    background:
      share === 0
        ? "var(--chakra-colors-bg-muted)"
        : `color-mix(in srgb, var(--chakra-colors-blue-solid) ${Math.round(share * 90)}%, transparent)`,
    color: share > 0.6 ? "white" : "inherit",
  };
}
