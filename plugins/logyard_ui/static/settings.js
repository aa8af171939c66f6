// Settings as a list, and as the lines that a person edits; values are shown as text, whatever is in them.

import { UI, h, useMemo, useState } from "./host.js";
import { Pick } from "./pick.js";
import { Search, Table } from "./table.js";

const { Code, Flex } = UI;

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: "this topic",
  DYNAMIC_BROKER_CONFIG: "this broker, while it runs",
  DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, while they run",
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
  const overrides = configs.some((config) => config.override);
  const [all, setAll] = useState(!overrides);
  const [wanted, setWanted] = useState("");
  const rows = useMemo(
    () =>
      configs
        .filter((config) => (all || config.override) && config.name.includes(wanted.trim()))
        .sort((a, b) => Number(b.override) - Number(a.override) || (a.name < b.name ? -1 : 1)),
    [configs, all, wanted],
  );
  return h(
    Flex,
    { direction: "column", gap: "2" },
    h(
      Search,
      { label: "Search settings", value: wanted, onChange: setWanted },
      h(Pick, { label: "Defaults too", on: all, set: setAll }),
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

function Value({ config }) {
  if (config.sensitive) return h("span", { "data-quiet": "" }, "hidden");
  if (config.value === null || config.value === "")
    return h("span", { "data-quiet": "" }, config.value === null ? "none" : "empty");
  return h(Code, { size: "sm", variant: "plain", whiteSpace: "pre-wrap", wordBreak: "break-all" }, config.value);
}

// What is set and can be edited as lines: {name: value}.
export function editable(configs) {
  const open = configs.filter(
    (config) => config.override && !config.sensitive && config.value !== null && !/[\r\n]/.test(config.value),
  );
  return Object.fromEntries(open.map((config) => [config.name, config.value]));
}

// {"a": "1"} → "a=1", one a line.
export function lines(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value ?? ""}`)
    .join("\n");
}

// The reverse: {settings, problem}.
export function parse(text) {
  const settings = {};
  for (const line of text.split("\n").map((part) => part.trim())) {
    if (line === "" || line.startsWith("#")) continue;
    const equals = line.indexOf("=");
    if (equals <= 0) return { settings, problem: `“${line}” is no setting: write name=value` };
    const name = line.slice(0, equals).trim();
    if (Object.hasOwn(settings, name)) return { settings, problem: `${name} is there twice` };
    settings[name] = line.slice(equals + 1).trim();
  }
  return { settings, problem: "" };
}

// What makes `after` of `before`: {name: value}, null for what is unset.
export function difference(before, after) {
  const changes = {};
  for (const [name, value] of Object.entries(after)) if (before[name] !== value) changes[name] = value;
  for (const name of Object.keys(before)) if (!Object.hasOwn(after, name)) changes[name] = null;
  return changes;
}
