// The answers of a search as one list of entries, and how keys move in it. Pure; `search_box.js` renders them.

import { plural } from "./format.js";

// A route's answer → entries {id, kind, label, note, place}, in the order in which they are shown.
export function entries(found) {
  if (!found) return [];
  const topics = found.topics.map(({ name, partitions }) =>
    entry("Topics", name, plural(partitions, "partition"), { view: "topic", topic: name }),
  );
  const groups = (found.groups ?? []).map(({ group, state }) =>
    entry("Groups", group, state, { view: "group", group }),
  );
  const brokers = found.brokers.map(({ id, host, rack, alive }) =>
    entry("Brokers", `Broker ${id}`, alive ? [host, rack].filter(Boolean).join(", ") : "not alive", {
      view: "broker",
      broker: id,
    }),
  );
  return [...topics, ...groups, ...brokers];
}

function entry(kind, label, note, place) {
  return { id: `${kind} ${label}`, kind, label, note, place };
}

// The place of the chosen entry after a key, -1: none. Past either end it begins again.
export function moved(key, at, count) {
  if (count === 0) return -1;
  if (key === "ArrowDown") return (at + 1) % count;
  if (key === "ArrowUp") return at <= 0 ? count - 1 : at - 1;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return at;
}

// How many were found that are not shown: "12 more topics".
export function left(found) {
  if (!found) return "";
  const more = [
    ["topic", found.topics_total - found.topics.length],
    ["group", (found.groups_total ?? 0) - (found.groups?.length ?? 0)],
    ["broker", found.brokers_total - found.brokers.length],
  ].filter(([, count]) => count > 0);
  return more.map(([what, count]) => plural(count, `more ${what}`)).join(", ");
}
