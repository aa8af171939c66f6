// Components that several views use: errors, notices, placeholders, figures, replicas, lists of facts.

import { sentence } from "./api.js";
import { Fragment, UI, h } from "./airflow_ui.js";
import { useCluster } from "./cluster_context.js";
import { clock, plainly } from "./format.js";
import { PageLink } from "./page_address.js";

const { Alert, Badge, Box, Button, Flex, Heading, Skeleton, Text } = UI;

export function Problem({ problem, status = "error" }) {
  if (!problem) return null;
  return h(
    Alert.Root,
    { status, size: "sm", role: "alert" },
    h(Alert.Indicator),
    h(Alert.Title, { fontWeight: "normal" }, typeof problem === "string" ? problem : sentence(problem)),
  );
}

export function Notice({ children, status = "info" }) {
  return h(Alert.Root, { status, size: "sm" }, h(Alert.Indicator), h(Alert.Title, { fontWeight: "normal" }, children));
}

export function Loading({ what, rows = 6 }) {
  return h(
    Flex,
    { direction: "column", gap: "2", role: "status", "aria-label": `Loading ${what}` },
    Array.from({ length: rows }, (_, index) => h(Skeleton, { key: index, height: "6", borderRadius: "sm" })),
  );
}

export function Empty({ title, children }) {
  return h(
    Box,
    {
      borderWidth: "1px",
      borderStyle: "dashed",
      borderColor: "border.emphasized",
      borderRadius: "md",
      padding: "5",
      textAlign: "center",
    },
    h(Text, { fontWeight: "semibold" }, title),
    children && h(Box, { color: "fg.muted", fontSize: "sm", marginTop: "1" }, children),
  );
}

// What was read before an outage: dimmed, with its time.
export function Stale({ since, children }) {
  return h(
    Flex,
    { direction: "column", gap: "3", flex: "1", minHeight: "0", "data-testid": "stale" },
    h(Text, { fontSize: "sm", color: "fg.muted" }, since ? `As of ${clock(since)}.` : "As it was read last."),
    h(Flex, { direction: "column", gap: "3", flex: "1", minHeight: "0", opacity: "0.5" }, children),
  );
}

// A polled answer: its error above, its content below, or a placeholder while it loads. While the cluster does not
// answer, the page says so above; here nothing repeats it.
export function Loaded({ answer, what, rows, children }) {
  const overview = useCluster()?.overview;
  if (overview?.reachable === false && (!answer.problem || answer.problem.status >= 500)) {
    if (!answer.data) return h(Empty, { title: `Nothing is known of ${what} while the cluster does not answer.` });
    const since = answer.data.taken_at_ms ?? overview.taken_at_ms;
    return h(Stale, { since }, children(answer.data));
  }
  return h(
    Fragment,
    null,
    h(Problem, { problem: answer.problem }),
    answer.data ? children(answer.data) : answer.problem ? null : h(Loading, { what, rows }),
  );
}

const PARTS = {
  offsets: "offsets",
  configs: "settings",
  sizes: "sizes",
  groups: "groups",
  old_groups: "groups of old consumers",
  transactions: "transactions",
};

// The parts that an answer lacks: those that are still being read, and those that failed.
export function MissingParts({ data }) {
  const pending = (data.pending ?? []).map((part) => PARTS[part] ?? part);
  const problems = Object.entries(data.problems ?? {});
  return h(
    Fragment,
    null,
    problems.map(([part, text]) => h(Notice, { key: part, status: "warning" }, `No ${PARTS[part] ?? part}: ${text}`)),
    pending.length > 0 &&
      h(Text, { color: "fg.muted", fontSize: "sm", role: "status" }, `Still reading ${pending.join(", ")} …`),
  );
}

export function Section({ title, aside, children, ...rest }) {
  return h(
    Box,
    { as: "section", ...rest },
    h(
      Flex,
      {
        alignItems: "center",
        justifyContent: "space-between",
        gap: "3",
        marginBottom: "2",
        minHeight: "8",
        wrap: "wrap",
      },
      h(Heading, { as: "h2", size: "md" }, title),
      aside,
    ),
    children,
  );
}

// The heading of one item: a link to its list, its name, and its actions.
export function Head({ list, to, name, children }) {
  return h(
    Flex,
    { gap: "3", alignItems: "center", justifyContent: "space-between", wrap: "wrap" },
    h(
      Flex,
      { gap: "2", alignItems: "baseline", minWidth: "0" },
      h(PageLink, { to }, list),
      h(Text, { color: "fg.muted" }, "/"),
      h(Heading, { as: "h1", size: "lg", wordBreak: "break-all" }, plainly(name)),
    ),
    children && h(Flex, { gap: "2", wrap: "wrap" }, children),
  );
}

// A number with a label; `wrap` may make it a link, `dim` shows that it is not of now.
export function Figure({ label, value, help, tone, dim, wrap = (child) => child, ...rest }) {
  const color = { bad: "fg.error", warn: "fg.warning", good: "fg.success" }[tone];
  return wrap(
    h(
      Box,
      {
        borderWidth: "1px",
        borderColor: tone === "bad" ? "border.error" : "border",
        borderRadius: "md",
        paddingX: "4",
        paddingY: "2.5",
        bg: tone === "bad" ? "bg.error" : "bg",
        minWidth: "0",
        height: "full",
        "data-testid": "figure",
        ...rest,
      },
      h(Text, { color: "fg.muted", fontSize: "sm" }, label),
      h(
        Text,
        {
          fontSize: "2xl",
          fontWeight: "semibold",
          lineHeight: "1.3",
          color,
          opacity: dim ? "0.5" : undefined,
          fontVariantNumeric: "tabular-nums",
        },
        value,
      ),
      help &&
        h(
          Text,
          { color: "fg.muted", fontSize: "xs", truncate: true, title: typeof help === "string" ? help : undefined },
          help,
        ),
    ),
  );
}

export function Figures({ children, least = "9.5rem" }) {
  return h(
    Box,
    // On a phone two are side by side.
    { display: "grid", gap: "3", gridTemplateColumns: `repeat(auto-fill, minmax(min(${least}, 45%), 1fr))` },
    children,
  );
}

const HEALTH = {
  ok: ["green", "Healthy"],
  warning: ["orange", "Warning"],
  critical: ["red", "Critical"],
  unreachable: ["red", "Unreachable"],
};

export function Health({ health, ...rest }) {
  const [colorPalette, label] = HEALTH[health] ?? ["gray", "Unknown"];
  return h(Badge, { colorPalette, variant: "solid", size: "md", ...rest }, label);
}

const STATES = {
  success: "green",
  failed: "red",
  upstream_failed: "orange",
  running: "cyan",
  queued: "gray",
  deferred: "purple",
  awaiting_input: "orange",
  up_for_retry: "yellow",
  skipped: "pink",
  Stable: "green",
  Empty: "gray",
  Dead: "red",
};

export function State({ state, ...rest }) {
  return h(Badge, { colorPalette: STATES[state] ?? "gray", ...rest }, String(state ?? "none").replaceAll("_", " "));
}

// Replicas in the order of their assignment: the leader bold, those out of sync struck through in red.
export function Replicas({ replicas, isr = replicas, leader = -1 }) {
  const inSync = new Set(isr);
  return h(
    "span",
    null,
    replicas.map((broker, place) =>
      h(
        Fragment,
        { key: broker },
        place > 0 && ", ",
        h(
          "span",
          {
            "data-bad": inSync.has(broker) ? undefined : "",
            style: {
              fontWeight: broker === leader ? 700 : undefined,
              textDecoration: inSync.has(broker) ? undefined : "line-through",
            },
            title:
              [broker === leader && "leader", !inSync.has(broker) && "out of sync"].filter(Boolean).join(", ") ||
              undefined,
          },
          broker,
        ),
      ),
    ),
  );
}

// A bar of one part of a whole, 0 to 1.
export function Bar({ part, label, tone = "blue", height = "2" }) {
  const share = Math.max(0, Math.min(1, part || 0));
  return h(
    Box,
    {
      role: "progressbar",
      "aria-label": label,
      "aria-valuenow": Math.round(share * 100),
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      bg: "bg.emphasized",
      borderRadius: "full",
      height,
      overflow: "hidden",
      width: "full",
    },
    h(Box, {
      bg: `${tone}.solid`,
      height: "full",
      borderRadius: "full",
      style: { width: `${share * 100}%` },
      transition: "width 0.4s",
    }),
  );
}

export function Facts({ facts }) {
  return h(
    Flex,
    { as: "dl", gap: "1", columnGap: "6", wrap: "wrap", fontSize: "sm" },
    facts
      .filter(Boolean)
      .map(([name, value]) =>
        h(
          Flex,
          { key: name, gap: "1.5" },
          h(Box, { as: "dt", color: "fg.muted" }, name),
          h(Box, { as: "dd", fontWeight: "medium" }, value),
        ),
      ),
  );
}

export function Act({ children, danger = false, ...rest }) {
  return h(
    Button,
    { size: "sm", variant: danger ? "outline" : "solid", colorPalette: danger ? "red" : "brand", ...rest },
    children,
  );
}
