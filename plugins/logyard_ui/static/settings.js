// A list of settings; values are shown as text. Those of brokers can be changed from here.

import { UI, h, useMemo, useState } from "./airflow_ui.js";
import { RowAction, useMayAct } from "./action_button.js";
import { ALL, brokerSettings } from "./broker_actions.js";
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

// What a person may change while the brokers run, in a dialog with all that is set here.
function changing(broker, configs) {
  const values = (row) => brokerSettings(broker, configs, row.name);
  const fixed = { "data-quiet": "", title: "Only the broker's own file sets it: the broker has to be restarted." };
  return {
    id: "change",
    label: "",
    width: "6rem",
    cell: (row) =>
      row.read_only
        ? h("span", fixed, "fixed")
        : !row.sensitive && h(RowAction, { action: "alter_broker_settings", values: () => values(row) }, "Change"),
  };
}

// `broker`: whose settings they are, where they can be changed from here: an id, or "default" for all brokers.
export function Settings({ configs, name, broker }) {
  const acts = useMayAct("alter_broker_settings") && broker !== undefined;
  const columns = useMemo(() => (acts ? [...COLUMNS, changing(broker, configs)] : COLUMNS), [acts, broker, configs]);
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
      broker !== ALL && h(CheckboxField, { label: "Include defaults", on: all, set: setAll }),
    ),
    h(Table, {
      name,
      columns,
      rows,
      rowKey: (row) => row.name,
      maxHeight: "28rem",
      empty: "No setting matches.",
      cards: true,
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
