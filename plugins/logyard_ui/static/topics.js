// All topics: searched, filtered and sorted in the browser, so that typing has an effect at once.

import { ActionButton } from "./action_button.js";
import { useCluster, useList, useRoute } from "./cluster_context.js";
import { bytes, number, plural } from "./format.js";
import { React, UI, h, useMemo } from "./airflow_ui.js";
import { Empty, Loaded } from "./components.js";
import { CheckboxField } from "./checkbox.js";
import { InternalTopics } from "./internal_topics.js";
import { PageLink, rowLink } from "./page_address.js";
import { Search, Table } from "./table.js";
import { useDelayedText } from "./delayed_text.js";

const { Flex, Text } = UI;
const SIZES_MS = 15000;

export function Topics() {
  const answer = useList("topics");
  const sizes = useRoute("sizes", {}, SIZES_MS);
  return h(
    Flex,
    { direction: "column", gap: "3", flex: "1", minHeight: "0" },
    h(Loaded, { answer, what: "topics", rows: 12 }, (data) => h(List, { data, sizes: sizes.data })),
  );
}

function List({ data, sizes }) {
  const { place, conn } = useCluster();
  const [typed, setTyped] = useDelayedText(place, "q");
  const wanted = React.useDeferredValue(typed);
  const only = place.get("only");
  const internal = place.get("internal") === "1";
  const rows = useMemo(() => asRows(data, sizes), [data, sizes]);
  const named = place.all("topic").join("\n");
  const found = useMemo(() => filtered(rows, { wanted, only, internal, named }), [rows, wanted, only, internal, named]);
  // The columns' links depend on the connection only: typing and sorting do not make new columns.
  const columns = useMemo(() => columnsOf(place), [conn]);
  return h(
    React.Fragment,
    null,
    h(
      Flex,
      { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
      h(
        Search,
        { label: "Search topics", value: typed, onChange: setTyped },
        h(CheckboxField, {
          label: "Unhealthy only",
          on: only === "trouble",
          set: (on) => place.stay({ only: on ? "trouble" : "" }),
        }),
        h(InternalTopics),
        h(
          Text,
          { color: "fg.muted", fontSize: "sm", role: "status" },
          found.length === rows.length
            ? plural(rows.length, "topic")
            : `${number(found.length)} of ${plural(rows.length, "topic")}`,
        ),
        named !== "" && h(PageLink, { to: place.to({ view: "topics" }), fontSize: "sm" }, "Show all"),
      ),
      h(
        Flex,
        { gap: "2", wrap: "wrap" },
        h(ActionButton, { action: "retention_report", plain: true }, "Report"),
        h(ActionButton, { action: "topics_as_code", values: { file: "topics.yaml" }, plain: true }, "From a file"),
        h(ActionButton, { action: "create_topic" }, "Create topic"),
      ),
    ),
    rows.length === 0
      ? h(Empty, { title: "There is no topic yet." }, "Create one here, by a DAG, or with any of Kafka's tools.")
      : h(Table, {
          name: "Topics",
          columns,
          rows: found,
          rowKey: (row) => row.name,
          order: place.get("sort") || "name",
          onOrder: (sort) => place.stay({ sort }),
          fill: true,
          cards: true,
          empty: "No topic's name matches.",
        }),
  );
}

function columnsOf(place) {
  const count = (id, label, { bad = false, width = "9.5rem" } = {}) => ({
    id,
    label,
    end: true,
    width,
    value: (row) => row[id],
    cell: (row) =>
      h(
        "span",
        { "data-bad": bad && row[id] ? "" : undefined, "data-quiet": row[id] ? undefined : "" },
        number(row[id]),
      ),
  });
  return [
    {
      id: "name",
      label: "Topic",
      value: (row) => row.name,
      cell: (row) => rowLink(place.to({ view: "topic", topic: row.name }), row.name),
    },
    count("partitions", "Partitions"),
    count("replication_factor", "Replicas each"),
    count("under_replicated", "Under-replicated", { bad: true, width: "11rem" }),
    count("offline", "Offline", { bad: true, width: "7rem" }),
    count("not_preferred", "Not preferred"),
    {
      id: "bytes",
      label: "Bytes, all replicas",
      end: true,
      width: "12rem",
      value: (row) => row.bytes,
      cell: (row) => bytes(row.bytes),
    },
  ];
}

function asRows(data, sizes) {
  const held = sizes?.topics ?? {};
  return data.rows.map((row) => {
    const entry = {};
    data.columns.forEach((column, index) => {
      entry[column] = row[index];
    });
    entry.bytes = held[entry.name]?.bytes ?? null;
    return entry;
  });
}

// `named`: only these topics, one a line; all of them where empty.
function filtered(rows, { wanted, only, internal, named }) {
  const names = named === "" ? null : new Set(named.split("\n"));
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(
    (row) =>
      (names ? names.has(row.name) : internal || !row.internal) &&
      (only !== "trouble" || row.under_replicated > 0 || row.offline > 0) &&
      words.every((word) => row.name.toLowerCase().includes(word)),
  );
}
