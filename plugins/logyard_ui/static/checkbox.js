// A checkbox with a label.

import { UI, h } from "./airflow_ui.js";

const { Checkbox } = UI;

export function CheckboxField({ label, on, set, ...rest }) {
  return h(
    Checkbox.Root,
    { size: "sm", checked: on, onCheckedChange: ({ checked }) => set(checked === true), ...rest },
    h(Checkbox.HiddenInput),
    h(Checkbox.Control),
    h(Checkbox.Label, null, label),
  );
}
