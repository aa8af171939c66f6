// A reassignment before it runs: the goals (in the address, so that a plan can be shared) and their effect: which
// replicas move, how many bytes are copied, what each broker has before and after.

import { pageApi } from "./api.js";
import { useCluster, useList } from "./cluster_context.js";
import { bytes, clock, number, percent, plural, seconds } from "./format.js";
import { Fragment, UI, h, useEffect, useState } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { ActionButton } from "./action_button.js";
import { Empty, Facts, Loading, Notice, Problem, Section } from "./components.js";
import { CheckboxField } from "./checkbox.js";
import { Table } from "./table.js";

const { Box, Button, Field, Flex, Input, Text } = UI;
const SHOWN = 1000;

export function Planning({ running }) {
  const { place } = useCluster();
  const goals = read(place);
  const asked = place.get("preview") === "1";
  const [changed, setChanged] = useState(false);
  return h(
    Section,
    { title: "Plan a reassignment" },
    h(
      Flex,
      { direction: "column", gap: "4" },
      h(Goals, { key: JSON.stringify(goals), goals, setChanged }),
      asked && h(Preview, { goals, running, changed }),
    ),
  );
}

function read(place) {
  const list = (name) =>
    place
      .get(name)
      .split(/[\s,]+/)
      .filter(Boolean);
  return {
    topics: list("topics"),
    drain: list("drain")
      .filter((id) => /^\d+$/.test(id))
      .map(Number),
    replication_factor: place.get("rf"),
    balance: place.get("balance") === "1",
    balance_disk: place.get("disk") === "1",
    throttle: place.get("throttle"),
  };
}

// `setChanged`: told whether the form differs from the goals whose difference is shown.
function Goals({ goals, setChanged }) {
  const { place } = useCluster();
  const brokers = useList("brokers");
  const [topics, setTopics] = useState(goals.topics.join(", "));
  const [drain, setDrain] = useState(new Set(goals.drain));
  const [rf, setRf] = useState(goals.replication_factor);
  const [balance, setBalance] = useState(goals.balance);
  const [disk, setDisk] = useState(goals.balance_disk);
  const [throttle, setThrottle] = useState(goals.throttle);
  const next = {
    topics: topics.trim(),
    drain: [...drain].sort((a, b) => a - b).join(","),
    rf: rf.trim(),
    balance: balance ? "1" : "",
    disk: disk ? "1" : "",
    throttle: throttle.trim(),
  };
  const typed = JSON.stringify(Object.values(next));
  const [first] = useState(typed);
  useEffect(() => setChanged(typed !== first), [typed]);
  const submit = (event) => {
    event.preventDefault();
    place.stay({ ...next, preview: 1 }, { replace: false });
  };
  const turn = (id, on) => {
    const next = new Set(drain);
    if (on) next.add(id);
    else next.delete(id);
    setDrain(next);
  };
  const ids = [...new Set([...(brokers.data?.brokers ?? []).map((broker) => broker.id), ...goals.drain])].sort(
    (a, b) => a - b,
  );
  return h(
    Flex,
    {
      as: "form",
      onSubmit: submit,
      direction: "column",
      gap: "4",
      borderWidth: "1px",
      borderRadius: "md",
      padding: "4",
    },
    h(
      Box,
      { display: "grid", gap: "4", gridTemplateColumns: { base: "1fr", md: "2fr 1fr 1fr" } },
      h(Entry, {
        label: "Topics",
        help: "Separated by commas; empty: all topics.",
        value: topics,
        set: setTopics,
      }),
      h(Entry, { label: "Replicas of each", help: "Empty: as now.", value: rf, set: setRf, numeric: true }),
      h(Entry, {
        label: "Throttle, bytes per second",
        help: "Empty: the connection's.",
        value: throttle,
        set: setThrottle,
        numeric: true,
      }),
    ),
    h(
      Flex,
      { gap: "6", wrap: "wrap", alignItems: "center" },
      h(CheckboxField, { label: "Balance replicas and leaders", on: balance, set: setBalance }),
      h(CheckboxField, { label: "Balance bytes", on: disk, set: setDisk }),
      ids.length > 0 &&
        h(
          Flex,
          { as: "fieldset", gap: "3", alignItems: "center", wrap: "wrap", border: "none" },
          h(
            Text,
            { as: "legend", float: "left", fontSize: "sm", fontWeight: "medium", marginEnd: "2" },
            "Empty brokers",
          ),
          ids.map((id) =>
            h(CheckboxField, { key: id, label: String(id), on: drain.has(id), set: (on) => turn(id, on) }),
          ),
        ),
    ),
    h(
      Flex,
      null,
      h(Button, { type: "submit", size: "sm", colorPalette: "brand", variant: "outline" }, "Show the difference"),
    ),
  );
}

function Entry({ label, help, value, set, numeric }) {
  const problem = numeric && value.trim() !== "" && !/^[1-9]\d*$/.test(value.trim());
  return h(
    Field.Root,
    { invalid: problem },
    h(Field.Label, null, label),
    h(Input, {
      size: "sm",
      value,
      inputMode: numeric ? "numeric" : undefined,
      autoComplete: "off",
      spellCheck: false,
      onChange: (event) => set(event.target.value),
    }),
    problem ? h(Field.ErrorText, null, "A whole number above 0.") : h(Field.HelperText, null, help),
  );
}

function Preview({ goals, running, changed }) {
  const { conn } = useCluster();
  const answer = usePolled(
    pageApi("plan", {
      conn_id: conn,
      topic: goals.topics,
      drain: goals.drain,
      replication_factor: goals.replication_factor,
      balance: goals.balance ? "true" : "",
      balance_disk: goals.balance_disk ? "true" : "",
      throttle: goals.throttle,
      limit: SHOWN,
    }),
    0,
  );
  if (answer.problem) return h(Problem, { problem: answer.problem });
  if (!answer.data) return h(Loading, { what: "the plan", rows: 4 });
  return h(Difference, { plan: answer.data, goals, running, changed });
}

function Difference({ plan, goals, running, changed }) {
  if (plan.partitions_total === 0) return h(NothingMoves, { goals });
  return h(
    Flex,
    { direction: "column", gap: "4", role: "region", "aria-label": "Difference" },
    h(
      Flex,
      { justifyContent: "space-between", alignItems: "center", gap: "3", wrap: "wrap" },
      h(Facts, {
        facts: [
          ["Partitions that change", number(plan.partitions_total)],
          ["Replicas that move", number(plan.replicas_moved)],
          ["Bytes to copy", bytes(plan.bytes_moved)],
          plan.seconds_at_throttle !== null &&
            plan.throttle && [`At ${bytes(plan.throttle)} per second`, seconds(plan.seconds_at_throttle)],
        ],
      }),
      h(
        ActionButton,
        { action: "reassign_replicas", values: toRun(plan, goals), disabled: running || changed },
        "Run this plan",
      ),
    ),
    changed && h(Notice, { status: "info" }, "The goals were changed since: show the difference again to run them."),
    h(
      Text,
      { color: "fg.muted", fontSize: "sm" },
      `Bytes as the brokers told them at ${clock(plan.sizes_taken_at_ms)}.`,
    ),
    (running || plan.running) &&
      h(
        Notice,
        { status: "warning" },
        "Another reassignment runs: wait for its end, or cancel it, before you run this plan.",
      ),
    h(
      Section,
      { title: "Brokers before and after" },
      h(Table, {
        name: "Brokers before and after",
        columns: BROKER_COLUMNS,
        rows: plan.brokers,
        rowKey: (row) => row.broker,
        cards: true,
      }),
    ),
    plan.disks?.length > 0 &&
      h(
        Section,
        { title: "Disks" },
        (plan.warnings ?? []).map((warning) =>
          h(Text, { key: warning, role: "alert", color: "fg.warning" }, `${sentence(warning)}.`),
        ),
        h(Table, { name: "Disks", columns: DISK_COLUMNS, rows: plan.disks, rowKey: (row) => row.broker, cards: true }),
      ),
    h(
      Section,
      { title: "Partitions that change" },
      h(Table, {
        name: "Partitions that change",
        columns: MOVE_COLUMNS,
        rows: plan.partitions,
        rowKey: (row) => `${row.topic}-${row.partition}`,
        cards: true,
      }),
      !plan.complete &&
        h(
          Text,
          { color: "fg.muted", fontSize: "sm", marginTop: "1" },
          `The first ${number(plan.partitions.length)} of ${plural(plan.partitions_total, "partition")}.`,
        ),
    ),
  );
}

function NothingMoves({ goals }) {
  if (goals.drain.length > 0 || goals.replication_factor !== "" || goals.balance || goals.balance_disk)
    return h(Empty, { title: "Nothing would move." }, "The cluster meets the goals already.");
  return h(
    Empty,
    { title: "Choose a goal." },
    "Empty brokers, change the number of replicas, or balance. Without a goal only replicas on brokers that are not ",
    "alive would move, and there are none.",
  );
}

// What the dialog sends: the plan, if all of it was shown, else the goals.
function toRun(plan, goals) {
  const exact = plan.complete;
  const partitions = plan.partitions.map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
  const rf = goals.replication_factor === "" ? undefined : Number(goals.replication_factor);
  const wanted = {
    topics: goals.topics,
    drain: goals.drain,
    replication_factor: rf,
    balance: goals.balance,
    balance_disk: goals.balance_disk,
  };
  return { plan, exact, goals: exact ? { plan: { version: 1, partitions } } : wanted, throttle: goals.throttle };
}

const MOVE_COLUMNS = [
  { id: "partition", label: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
  {
    id: "from",
    label: "Replicas now",
    width: "14rem",
    cell: (row) => h(Slots, { slots: row.from, others: row.replicas, sign: "−" }),
  },
  {
    id: "to",
    label: "Replicas after",
    width: "14rem",
    cell: (row) => h(Slots, { slots: row.replicas, others: row.from, sign: "+" }),
  },
  { id: "size", label: "Bytes of each", end: true, width: "9rem", cell: (row) => bytes(row.size) },
];

// Replicas; those that the other list lacks are marked by colour and sign.
function Slots({ slots, others, sign }) {
  return h(
    Fragment,
    null,
    slots.map((broker, place) =>
      h(
        Fragment,
        { key: broker },
        place > 0 && ", ",
        others.includes(broker)
          ? h("span", { style: { fontWeight: place === 0 ? 600 : undefined } }, broker)
          : h(
              Box,
              { as: "span", color: sign === "+" ? "fg.success" : "fg.error", fontWeight: "bold" },
              `${sign}${broker}`,
            ),
      ),
    ),
  );
}

const change = (id, label, show = number) => ({
  id,
  label,
  end: true,
  cell: (row) => {
    const [before, after] = [row[`${id}_before`], row[`${id}_after`]];
    if (before === after) return h("span", { "data-quiet": "" }, show(after));
    return h("span", null, `${show(before)} → `, h("b", null, show(after)));
  },
});

const BROKER_COLUMNS = [
  {
    id: "broker",
    label: "Broker",
    width: "10rem",
    cell: (row) => `Broker ${row.broker}${row.alive ? "" : ", not alive"}`,
  },
  { id: "rack", label: "Rack", width: "7rem", cell: (row) => row.rack ?? "–" },
  change("replicas", "Replicas"),
  change("leaders", "Leaders"),
  change("bytes", "Bytes", bytes),
  {
    id: "peak",
    label: "Peak bytes",
    end: true,
    cell: ({ bytes_peak: peak, capacity }) =>
      `${bytes(peak)}${capacity && peak !== null ? ` (${percent(peak / capacity)})` : ""}`,
  },
];

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

const DISK_COLUMNS = [
  { id: "broker", label: "Broker", width: "8rem", cell: (row) => `Broker ${row.broker}` },
  { id: "comes", label: "Comes in", end: true, cell: (row) => bytes(row.comes) },
  { id: "goes", label: "Goes", end: true, cell: (row) => bytes(row.goes) },
  { id: "free", label: "Free now", end: true, cell: (row) => bytes(row.free) },
  { id: "least", label: "While they move", end: true, cell: (row) => bytes(row.free_least) },
  { id: "after", label: "Free after", end: true, cell: (row) => bytes(row.free_after) },
  {
    id: "directories",
    label: "Directories",
    cell: (row) =>
      row.directories
        .map((one) => {
          const told = [one.free !== null && `${bytes(one.free)} free`, one.goes > 0 && `${bytes(one.goes)} go`];
          return [one.path, told.filter(Boolean).join(", ")].filter(Boolean).join(": ");
        })
        .join("; ") || "–",
  },
];
