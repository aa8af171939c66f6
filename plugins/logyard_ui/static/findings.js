// What an operator may want to mend: each kind of finding with why it matters, and the DAG that mends it.

import { ActionButton } from "./action_button.js";
import { useCluster, useRoute } from "./cluster_context.js";
import { KINDS } from "./finding_kinds.js";
import { number, plural } from "./format.js";
import { Fragment, UI, h, useMemo } from "./airflow_ui.js";
import { Empty, Loaded, MissingParts, Section } from "./components.js";
import { rowLink } from "./page_address.js";
import { Table } from "./table.js";

const { Badge, Box, Flex, Text } = UI;
const FINDINGS_MS = 15000;

export function Findings() {
  const answer = useRoute("findings", {}, FINDINGS_MS);
  return h(Loaded, { answer, what: "findings" }, (data) => h(Content, { data }));
}

function Content({ data }) {
  const known = data.findings.filter(({ kind }) => KINDS[kind]);
  const found = known.filter(({ total }) => total > 0);
  const clean = known.filter(({ total }) => total === 0);
  const unknown = known.filter(({ total }) => total === null);
  return h(
    Flex,
    { direction: "column", gap: "6" },
    h(MissingParts, { data }),
    found.map((finding) => h(Finding, { key: finding.kind, finding, brokers: data.brokers })),
    found.length === 0 && unknown.length === 0 && h(Empty, { title: "Nothing to mend was found." }),
    h(Rest, { clean, unknown, looked: data.looked_at }),
  );
}

function Finding({ finding, brokers }) {
  const { place, conn } = useCluster();
  const spec = KINDS[finding.kind];
  const columns = useMemo(() => columnsOf(spec, brokers, place), [spec, brokers.join(), conn]);
  const several = finding.items.length > 1 ? spec.all?.(finding.items, { brokers }) : null;
  return h(
    Section,
    {
      title: h(
        Flex,
        { as: "span", gap: "2", alignItems: "center" },
        spec.title,
        h(Badge, { colorPalette: spec.serious ? "red" : "orange" }, counted(finding)),
      ),
      aside: several && h(Mend, { mend: several, several: true }),
      "data-testid": `finding-${finding.kind}`,
    },
    h(Text, { color: "fg.muted", fontSize: "sm", marginBottom: "2" }, spec.why),
    h(Table, {
      name: spec.title,
      columns,
      rows: finding.items,
      rowKey: (row) => row.topic ?? `${row.broker} ${row.values.path ?? ""}`,
      maxHeight: "22rem",
      cards: true,
    }),
    finding.total > finding.items.length &&
      h(Text, { color: "fg.muted", fontSize: "xs" }, `The first ${number(finding.items.length)} are shown.`),
  );
}

function counted({ total, items }) {
  if (items[0].topic !== null) return plural(total, "topic");
  return "path" in items[0].values ? plural(total, "directory", "directories") : plural(total, "broker");
}

function columnsOf(spec, brokers, place) {
  return [
    {
      id: "about",
      label: "About",
      least: 8,
      cell: ({ topic, broker }) =>
        topic === null
          ? rowLink(place.to({ view: "broker", broker }), `Broker ${broker}`)
          : rowLink(place.to({ view: "topic", topic }), topic),
    },
    { id: "what", label: "What was found", least: 12, cell: (row) => spec.told(row) },
    {
      id: "mend",
      label: "",
      width: "9rem",
      end: true,
      cell: (row) => h(Mend, { mend: spec.mend(row, { brokers }) }),
    },
  ];
}

function Mend({ mend, several = false }) {
  const { place } = useCluster();
  if (!mend) return null;
  const { label, action, values, danger } = mend;
  const to = mend.place && place.to(mend.place);
  const size = several ? "sm" : "2xs";
  return h(ActionButton, { action, values, to, danger, plain: true, size }, several ? `${label}, for all` : label);
}

function Rest({ clean, unknown, looked }) {
  const names = (kinds) => kinds.map(({ kind }) => KINDS[kind].title.toLowerCase()).join("; ");
  const first = (what, some, all, one) =>
    some < all ? [`${what} the first ${number(some)} of ${plural(all, one)}`] : [];
  const part = looked
    ? [
        ...first("settings of", looked.settings_of, looked.topics, "topic"),
        ...first("transactions on", looked.transactions_of, looked.partitions, "partition"),
      ]
    : [];
  return h(
    Box,
    { color: "fg.muted", fontSize: "sm" },
    clean.length > 0 && h(Text, null, `Looked for and not found: ${names(clean)}.`),
    unknown.length > 0 && h(Text, null, `Not known: ${names(unknown)}.`),
    part.length > 0 && h(Fragment, null, h(Text, null, `Looked at only in part: ${part.join("; ")}.`)),
  );
}
