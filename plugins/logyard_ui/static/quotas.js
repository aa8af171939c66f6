// The limits of users, clients and addresses.

import { React, h, useMemo } from "./airflow_ui.js";
import { ActionButton, RowAction, useMayAct } from "./action_button.js";
import { quotaValues } from "./quota_actions.js";
import { SearchedList } from "./searched_list.js";
import { limited, limits } from "./security_words.js";

const COLUMNS = [
  { id: "of", label: "Of", value: limited, cell: (row) => h("span", { title: limited(row) }, limited(row)) },
  { id: "limits", label: "Limits on each broker", cell: (row) => limits(row.limits) },
];
const ACTION = {
  id: "act",
  label: "",
  width: "11rem",
  cell: (row) =>
    h(
      React.Fragment,
      null,
      h(RowAction, { action: "set_quota", values: () => quotaValues(row) }, "Change"),
      h(RowAction, { action: "remove_quota", values: () => quotaValues(row), danger: true }, "Remove"),
    ),
};

export function Quotas() {
  const acts = useMayAct("set_quota");
  const columns = useMemo(() => (acts ? [...COLUMNS, ACTION] : COLUMNS), [acts]);
  return h(
    SearchedList,
    {
      route: "quotas",
      one: "quota",
      label: "quotas",
      columns,
      rowKey: (row) => JSON.stringify([row.user, row.client, row.ip]),
      order: "of",
      nothing: "Nobody is limited.",
    },
    h(ActionButton, { action: "set_quota" }, "Set limits"),
  );
}
