// Users: who logs in by SCRAM, and who ACLs and limits name; each with what leads to those.

import { number } from "./format.js";
import { React, h, useMemo } from "./airflow_ui.js";
import { ActionButton, RowAction, useMayAct } from "./action_button.js";
import { useCluster } from "./cluster_context.js";
import { rowLink } from "./page_address.js";
import { SearchedList } from "./searched_list.js";
import { limits } from "./security_words.js";

const COLUMNS = [
  {
    id: "user",
    label: "User",
    value: (row) => row.user,
    cell: (row) => h("span", { title: row.user }, row.user),
  },
  {
    id: "mechanisms",
    label: "Password for",
    width: "16rem",
    value: (row) => Object.keys(row.mechanisms).length,
    cell: (row) =>
      Object.keys(row.mechanisms).length > 0
        ? h("span", { title: iterations(row) }, Object.keys(row.mechanisms).sort().join(", "))
        : h("span", { "data-quiet": "", title: "Logs in by a certificate, a token or otherwise, if at all." }, "none"),
  },
];

function iterations({ mechanisms }) {
  return Object.entries(mechanisms)
    .map(([mechanism, count]) => `${mechanism}: ${number(count)} iterations`)
    .join(", ");
}

function rights(place) {
  return {
    id: "acls",
    label: "ACLs",
    end: true,
    width: "6rem",
    value: (row) => row.acls,
    cell: (row) =>
      row.acls ? rowLink(place.to({ view: "acls", q: `User:${row.user}` }), number(row.acls)) : number(row.acls),
  };
}

const LIMITS = { id: "limits", label: "Limits", cell: (row) => (row.limits ? limits(row.limits) || "none" : "–") };

const ACTION = {
  id: "act",
  label: "",
  width: "13rem",
  cell: (row) =>
    Object.keys(row.mechanisms).length > 0 &&
    h(
      React.Fragment,
      null,
      h(RowAction, { action: "change_password", values: () => passwordOf(row) }, "New password"),
      h(RowAction, { action: "delete_user", values: () => ({ user: row.user }), danger: true }, "Delete"),
    ),
};

// The mechanisms that the user has are those that get the new password.
function passwordOf({ user, mechanisms }) {
  return { user, mechanisms: Object.keys(mechanisms).sort().join(",") };
}

export function Users() {
  const { place } = useCluster();
  const acts = useMayAct("change_password");
  const columns = useMemo(() => [...COLUMNS, rights(place), LIMITS, ...(acts ? [ACTION] : [])], [place, acts]);
  return h(
    SearchedList,
    {
      route: "users",
      one: "user",
      label: "users",
      columns,
      rowKey: (row) => row.user,
      order: "user",
      nothing: "Nobody logs in by SCRAM, and no ACL or limit names a user.",
    },
    h(ActionButton, { action: "create_user" }, "Add a user"),
  );
}
