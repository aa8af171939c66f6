// A button for an action, shown only to users who may start its DAG.

import { ACTIONS } from "./actions.js";
import { useCluster } from "./cluster_context.js";
import { RouterLink, UI, h } from "./airflow_ui.js";

const { Button } = UI;

// `to`: a link to the view that prepares the action, instead of its dialog.
export function ActionButton({ action, values, to, children, plain = false, danger = false, ...rest }) {
  const { actions, act } = useCluster();
  const dag = actions.get(ACTIONS[action].dag);
  if (!dag?.may_run) return null;
  const style = {
    size: "sm",
    variant: plain || danger ? "outline" : "solid",
    colorPalette: danger ? "red" : plain ? "gray" : "brand",
    ...rest,
  };
  if (to) return h(Button, { ...style, asChild: true }, h(RouterLink, { to }, children));
  return h(Button, { ...style, onClick: () => act(action, values) }, children);
}

// A button that opens a place of the page.
export function PlaceButton({ to, children }) {
  const style = { size: "sm", variant: "outline", colorPalette: "gray", asChild: true };
  return h(Button, style, h(RouterLink, { to }, children));
}

// The same in a row of a table: a plain element, since there may be hundreds.
export function RowAction({ action, values, children, danger = false, ...rest }) {
  const { actions, act } = useCluster();
  if (!actions.get(ACTIONS[action].dag)?.may_run) return null;
  const style = { type: "button", "data-danger": danger ? "" : undefined, ...rest };
  return h("button", { ...style, onClick: () => act(action, values()) }, children);
}

// Whether the user may start one of these actions: else a table needs no column for them.
export function useMayAct(...wanted) {
  const { actions } = useCluster();
  return wanted.some((action) => actions.get(ACTIONS[action].dag)?.may_run);
}
