// Who may do what on the cluster: all its ACLs, searched, added, removed.

import { React, h, useMemo } from "./airflow_ui.js";
import { ActionButton, RowAction, useMayAct } from "./action_button.js";
import { SearchedList } from "./searched_list.js";
import { resource, spoken } from "./security_words.js";

const COLUMNS = [
  {
    id: "permission",
    label: "May",
    width: "6rem",
    value: (row) => row.permission,
    cell: (row) => (row.permission === "DENY" ? h("span", { "data-bad": "" }, "may not") : "may"),
  },
  { id: "principal", label: "Who", value: (row) => row.principal, cell: (row) => h(Text, { text: row.principal }) },
  { id: "operation", label: "Do", width: "10rem", value: (row) => row.operation, cell: (row) => spoken(row.operation) },
  { id: "on", label: "On", value: resource, cell: (row) => h(Text, { text: resource(row) }) },
  {
    id: "host",
    label: "From",
    width: "9rem",
    value: (row) => row.host,
    cell: (row) => (row.host === "*" ? "anywhere" : row.host),
  },
];
const ACTION = {
  id: "act",
  label: "",
  width: "6rem",
  cell: (row) => h(RowAction, { action: "remove_acl", values: () => ({ acl: row }), danger: true }, "Remove"),
};

// Names may be long: their end is in the title.
function Text({ text }) {
  return h("span", { title: text }, text);
}

export function Acls() {
  const acts = useMayAct("remove_acl");
  const columns = useMemo(() => (acts ? [...COLUMNS, ACTION] : COLUMNS), [acts]);
  return h(
    SearchedList,
    {
      route: "acls",
      one: "ACL",
      label: "ACLs",
      columns,
      rowKey: (row) => JSON.stringify(row),
      order: "", // as the server sorts: denials first
      nothing: "There is no ACL: only super users may do anything, unless the brokers allow all.",
    },
    h(
      React.Fragment,
      null,
      h(ActionButton, { action: "grant_access" }, "Grant access"),
      h(ActionButton, { action: "add_acl", plain: true }, "Add an ACL"),
      h(ActionButton, { action: "revoke_access", danger: true }, "Revoke access"),
    ),
  );
}
