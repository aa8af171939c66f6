// A group's lag. Partitions for which it has committed nothing count from their first record, or not at all: that is
// for its consumers' auto.offset.reset to decide, which no broker knows; so the reader of the page chooses.

import { UI, h } from "./airflow_ui.js";
import { CheckboxField } from "./checkbox.js";
import { useCluster } from "./cluster_context.js";
import { plural } from "./format.js";

const { Flex, Text } = UI;

// Whether partitions without a commit are left out, as for auto.offset.reset=latest.
export function isLatest(place) {
  return place.get("reset") === "latest";
}

// Of a group, or of one partition of it: {lag, unread} → records; null where they are not known.
export function lagOf({ lag, unread }, latest) {
  if (latest || typeof unread !== "number") return lag;
  return (lag ?? 0) + unread;
}

// The choice, where there is one; `uncommitted`: how many partitions, `unread`: how many records they have.
export function LagChoice({ uncommitted, unread }) {
  const { place } = useCluster();
  if (!uncommitted) return null;
  return h(
    Flex,
    { direction: "column", gap: "1", marginY: "1", "data-testid": "lag-choice" },
    h(CheckboxField, {
      label: "Count partitions without a commit from their first record",
      on: !isLatest(place),
      set: (on) => place.stay({ reset: on ? "" : "latest" }),
    }),
    h(
      Text,
      { color: "fg.muted", fontSize: "xs" },
      `${plural(uncommitted, "partition")} without a commit, with ${plural(unread ?? 0, "record")}: `,
      "consumers with auto.offset.reset=earliest will read them, those with latest skip them.",
    ),
  );
}

export function sumOf(rows, name) {
  return rows.reduce((sum, row) => sum + (row[name] ?? 0), 0);
}
