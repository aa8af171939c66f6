// A list of settings; values are shown as text.

import { UI, h, useMemo, useState } from "./airflow_ui.js";
import { CheckboxField } from "./checkbox.js";
import { Search, Table } from "./table.js";

const { Code, Flex } = UI;

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: "this topic",
  DYNAMIC_BROKER_CONFIG: "this broker, dynamically",
  DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, dynamically",
  STATIC_BROKER_CONFIG: "the broker's file",
  DEFAULT_CONFIG: "default",
};

const COLUMNS = [
  {
    id: "name",
    label: "Setting",
    width: "22rem",
    cell: (row) => h("span", { style: { fontWeight: row.override ? 600 : undefined } }, row.name),
  },
  { id: "value", label: "Value", cell: (row) => h(Value, { config: row }) },
  {
    id: "source",
    label: "Set by",
    width: "14rem",
    cell: (row) => h("span", { "data-quiet": row.override ? undefined : "" }, SOURCES[row.source] ?? row.source),
  },
];

export function Settings({ configs, name }) {
  const [all, setAll] = useState(!configs.some(isSet));
  const [wanted, setWanted] = useState("");
  const rows = useMemo(
    () =>
      configs
        .filter((config) => (all || isSet(config)) && config.name.includes(wanted.trim()))
        .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1)),
    [configs, all, wanted],
  );
  return h(
    Flex,
    { direction: "column", gap: "2" },
    h(
      Search,
      { label: "Search settings", value: wanted, onChange: setWanted },
      h(CheckboxField, { label: "Include defaults", on: all, set: setAll }),
    ),
    h(Table, {
      name,
      columns: COLUMNS,
      rows,
      rowKey: (row) => row.name,
      maxHeight: "28rem",
      empty: "No setting matches.",
    }),
  );
}

function isSet(config) {
  return config.override || config.source !== "DEFAULT_CONFIG";
}

// Settings of this resource first, then those set elsewhere, then defaults.
function rank(config) {
  return config.override ? 0 : isSet(config) ? 1 : 2;
}

function Value({ config }) {
  if (config.sensitive) return h("span", { "data-quiet": "" }, "hidden");
  if (config.value === null || config.value === "")
    return h("span", { "data-quiet": "" }, config.value === null ? "none" : "empty");
  return h(
    Code,
    { size: "sm", variant: "plain", paddingX: "0", whiteSpace: "pre-wrap", wordBreak: "break-all" },
    config.value,
  );
}
