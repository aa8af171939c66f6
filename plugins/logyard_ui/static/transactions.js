// The open transactions of a topic, and which of them hold readers of committed records back.

import { UI, h } from "./airflow_ui.js";
import { Section } from "./components.js";
import { number, time } from "./format.js";
import { Table } from "./table.js";

const { Text } = UI;

const TRANSACTION_COLUMNS = [
  { id: "partition", label: "Partition", end: true, width: "6.5rem", cell: (row) => row.partition },
  {
    id: "id",
    label: "Transactional id",
    cell: (row) => row.transactional_id ?? h("span", { "data-quiet": "" }, "known to no coordinator"),
  },
  {
    id: "producer",
    label: "Producer",
    end: true,
    width: "9rem",
    cell: (row) => `${row.producer_id} (epoch ${row.producer_epoch})`,
  },
  { id: "start", label: "From offset", end: true, width: "9rem", cell: (row) => number(row.start) },
  { id: "last", label: "Last write", width: "14rem", cell: (row) => time(row.last_ms) },
  {
    id: "state",
    label: "State",
    width: "9rem",
    cell: (row) => (row.hangs ? h("span", { "data-bad": "" }, "hangs") : (row.state ?? "–")),
  },
  { id: "holds", label: "Holds back", width: "7rem", cell: (row) => (row.holds_back ? "yes" : "–") },
];

export function Transactions({ rows }) {
  return h(
    Section,
    { title: "Open transactions" },
    h(Table, {
      name: "Open transactions",
      columns: TRANSACTION_COLUMNS,
      rows,
      rowKey: (row) => `${row.partition} ${row.producer_id}`,
      cards: true,
    }),
    h(
      Text,
      { color: "fg.muted", fontSize: "xs", marginTop: "1" },
      "Consumers that read committed records only do not get past the transaction that holds a partition back.",
    ),
  );
}
