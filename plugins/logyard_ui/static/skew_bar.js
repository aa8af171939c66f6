// The distance from the mean as a bar: to the left for less, to the right for more, red from 30 % on.

import { UI, h } from "./airflow_ui.js";

const { Box, Flex } = UI;
const FULL = 1;

export function SkewBar({ value, label }) {
  if (typeof value !== "number") return h("span", { "data-quiet": "" }, "–");
  const share = Math.min(Math.abs(value) / FULL, 1) * 50;
  const tone = Math.abs(value) > 0.3 ? "red.solid" : Math.abs(value) > 0.1 ? "orange.solid" : "green.solid";
  const text = `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value * 100).toFixed(0)} %`;
  return h(
    Flex,
    { alignItems: "center", gap: "2", role: "img", "aria-label": `${label}: ${text}` },
    h(
      Box,
      {
        position: "relative",
        height: "2",
        flex: "1",
        minWidth: "3rem",
        bg: "bg.emphasized",
        borderRadius: "full",
        overflow: "hidden",
      },
      h(Box, {
        position: "absolute",
        top: 0,
        bottom: 0,
        bg: tone,
        style: { width: `${share}%`, left: value >= 0 ? "50%" : `${50 - share}%` },
      }),
      h(Box, { position: "absolute", top: 0, bottom: 0, left: "50%", width: "1px", bg: "fg.muted" }),
    ),
    h(Box, { width: "3.2rem", textAlign: "end", fontVariantNumeric: "tabular-nums" }, text),
  );
}
