// One switch for topics that the brokers themselves use, such as __consumer_offsets: it holds for every view.

import { h } from "./airflow_ui.js";
import { CheckboxField } from "./checkbox.js";
import { useCluster } from "./cluster_context.js";

export function InternalTopics() {
  const { place } = useCluster();
  return h(CheckboxField, {
    label: "Include internal topics",
    on: place.get("internal") === "1",
    set: (on) => place.stay({ internal: on ? "1" : "" }),
  });
}
