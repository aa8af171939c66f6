// A choice of yes or no.

import { UI, h } from "./airflow_ui.js";

const { Checkbox } = UI;

export function Pick({ label, on, set, ...rest }) {
  return h(
    Checkbox.Root,
    { size: "sm", checked: on, onCheckedChange: ({ checked }) => set(checked === true), ...rest },
    h(Checkbox.HiddenInput),
    h(Checkbox.Control),
    h(Checkbox.Label, null, label),
  );
}
