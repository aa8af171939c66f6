// Settings of several topics, or of several brokers, side by side: what differs first.

import { useCluster, useRoute } from "./cluster_context.js";
import { UI, h, useMemo, useState } from "./airflow_ui.js";
import { Empty, Head, Loaded, MissingParts } from "./components.js";
import { CheckboxField } from "./checkbox.js";
import { plural } from "./format.js";
import { SuggestingInput } from "./suggestions.js";
import { Search, Table } from "./table.js";

const { Button, Code, Flex, Text } = UI;
const MOST = 8;
const KINDS = { topics: "Topics", brokers: "Brokers" };

export function Compare() {
  const { place } = useCluster();
  const kind = place.get("of") === "brokers" ? "brokers" : "topics";
  const names = place.all("name").slice(0, MOST);
  return h(
    Flex,
    { direction: "column", gap: "4" },
    h(Head, { list: KINDS[kind], to: place.to({ view: kind }), name: "Settings compared" }),
    h(Names, { key: names.join("\n"), kind, names }),
    names.length === 0
      ? h(Empty, { title: `Name two ${kind} or more.` })
      : h(Compared, { key: `${kind} ${names.join("\n")}`, kind, names }),
  );
}

function Names({ kind, names }) {
  const { place } = useCluster();
  const [typed, setTyped] = useState("");
  const show = (next) => place.stay({ name: next }, { replace: false });
  const submit = (event) => {
    event.preventDefault();
    const name = typed.trim();
    if (name && !names.includes(name)) show([...names, name]);
  };
  return h(
    Flex,
    { as: "form", onSubmit: submit, gap: "2", wrap: "wrap", alignItems: "center", "aria-label": "What is compared" },
    names.map((name) =>
      h(
        Button,
        {
          key: name,
          type: "button",
          size: "xs",
          variant: "outline",
          maxWidth: "full",
          height: "auto",
          minHeight: "8",
          whiteSpace: "normal",
          wordBreak: "break-all",
          "aria-label": `Leave out ${name}`,
          onClick: () => show(names.filter((other) => other !== name)),
        },
        `${named(kind, name)}  ×`,
      ),
    ),
    names.length < MOST &&
      h(SuggestingInput, {
        kind,
        size: "sm",
        width: "14rem",
        "aria-label": `Add ${kind}`,
        placeholder: `Add one of the ${kind}`,
        value: typed,
        onChange: (event) => setTyped(event.target.value),
      }),
    names.length < MOST && h(Button, { type: "submit", size: "sm", variant: "outline" }, "Add"),
  );
}

function named(kind, name) {
  return kind === "brokers" ? `Broker ${name}` : name;
}

function Compared({ kind, names }) {
  const answer = useRoute("compare", { kind, name: names });
  return h(Loaded, { answer, what: "settings", rows: 10 }, (data) => h(Content, { data, kind }));
}

function Content({ data, kind }) {
  const differing = data.settings.filter((row) => row.differs).length;
  const [all, setAll] = useState(false);
  const [wanted, setWanted] = useState("");
  const rows = data.settings.filter(
    (row) => (all || row.differs || row.set) && row.name.includes(wanted.trim().toLowerCase()),
  );
  const columns = useMemo(() => columnsOf(kind, data.names), [kind, data.names.join("\n")]);
  return h(
    Flex,
    { direction: "column", gap: "2" },
    h(MissingParts, { data }),
    h(
      Search,
      { label: "Search settings", value: wanted, onChange: setWanted },
      h(CheckboxField, { label: "Include what nobody has set", on: all, set: setAll }),
      data.names.length > 1 &&
        h(
          Text,
          { color: "fg.muted", fontSize: "sm", role: "status" },
          plural(differing, "setting differs", "settings differ"),
        ),
    ),
    h(Table, {
      name: "Settings compared",
      columns,
      rows,
      rowKey: (row) => row.name,
      empty: "No setting is set by anybody.",
      cards: true,
    }),
  );
}

function columnsOf(kind, names) {
  return [
    {
      id: "name",
      label: "Setting",
      width: "19rem",
      cell: (row) => h("span", { style: { fontWeight: row.differs && !row.own ? 600 : undefined } }, row.name),
    },
    ...names.map((name, index) => ({
      id: `at ${name}`,
      label: named(kind, name),
      least: 11,
      cell: (row) => h(Value, { row, value: row.values[index], source: row.sources[index] }),
    })),
    {
      id: "default",
      label: "Default",
      least: 11,
      cell: (row) => h("span", { "data-quiet": "" }, row.sensitive ? "hidden" : (row.default ?? "–")),
    },
  ];
}

function Value({ row, value, source }) {
  if (row.sensitive) return h("span", { "data-quiet": "" }, "hidden");
  if (source === null) return h("span", { "data-quiet": "" }, "–");
  if (value === null || value === "") return h("span", { "data-quiet": "" }, value === null ? "none" : "empty");
  return h(
    Code,
    {
      size: "sm",
      variant: "plain",
      paddingX: "0",
      whiteSpace: "pre-wrap",
      wordBreak: "break-all",
      fontWeight: row.differs && !row.own ? "semibold" : undefined,
      color: source === "DEFAULT_CONFIG" ? "fg.muted" : undefined,
    },
    value,
  );
}
