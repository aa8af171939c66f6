// One plot over time, drawn by uPlot; its colours are those of Airflow's theme.

import { uPlot } from "./vendor/uplot.js";
import { UI, h, useEffect, useLayoutEffect, useRef, useState } from "./airflow_ui.js";

const HEIGHT = 180;
const COLORS = ["blue", "orange"];
// What can be told from the ground, and from each other, in light and in dark.
const SHADES = { light: 600, dark: 400 };

// The part of uPlot's style sheet that these plots need.
const STYLE = {
  "& .uplot": { fontSize: "12px", lineHeight: 1.4 },
  "& .u-wrap": { position: "relative", userSelect: "none" },
  "& .u-over, & .u-under": { position: "absolute" },
  "& .u-under": { overflow: "hidden" },
  "& canvas": { display: "block", position: "relative", width: "100%", height: "100%" },
  "& .u-axis": { position: "absolute" },
  "& .u-legend": { display: "block", textAlign: "start", borderSpacing: 0, marginTop: "1" },
  "& .u-inline tr": { display: "inline-block", marginInlineEnd: "4" },
  "& .u-legend th": { fontWeight: "normal", cursor: "pointer" },
  "& .u-legend th > *": { display: "inline-block", verticalAlign: "middle" },
  "& .u-legend .u-marker": { width: "10px", height: "10px", marginInlineEnd: "1.5" },
  "& .u-legend td": { paddingInlineStart: "1", fontVariantNumeric: "tabular-nums" },
  "& .u-series.u-off": { opacity: 0.4 },
  "& .u-select": { position: "absolute", pointerEvents: "none", bg: "bg.emphasized", opacity: 0.5 },
  "& .u-cursor-x, & .u-cursor-y": { position: "absolute", insetInlineStart: 0, top: 0, pointerEvents: "none" },
  "& .u-cursor-x": { height: "100%", borderInlineEndWidth: "1px", borderColor: "border.emphasized" },
  "& .u-cursor-y, & .u-off.u-cursor-x, & .u-off.u-cursor-pt, & .u-select.u-off": { display: "none" },
  "& .u-cursor-pt": { position: "absolute", top: 0, insetInlineStart: 0, borderRadius: "50%", pointerEvents: "none" },
};

// Steps of an axis of bytes.
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);

// `times`: seconds since 1970; `lines`: [[label, values]…], null where nothing is known; `format(value)` → text;
// `binary`: the values are bytes.
export function Plot({ title, times, lines, format, binary = false }) {
  const box = useRef(null);
  const [theme, width] = [useTheme(), useWidth(box)];
  useEffect(() => {
    if (!box.current || width === 0) return undefined;
    const plot = new uPlot(
      options(box.current, { width, format, binary, labels: lines.map(([label]) => label) }),
      [times, ...lines.map(([, values]) => values)],
      box.current,
    );
    return () => plot.destroy();
  }, [times, lines, format, binary, width, theme]);
  return h(
    UI.Box,
    { as: "figure", "aria-label": title, borderWidth: "1px", borderRadius: "md", padding: "3", minWidth: "0" },
    h(UI.Text, { as: "figcaption", fontSize: "sm", fontWeight: "medium", marginBottom: "1" }, title),
    h(UI.Box, { ref: box, css: STYLE, minHeight: `${HEIGHT}px`, overflow: "hidden" }),
  );
}

function options(element, { width, format, binary, labels }) {
  const color = (token) => getComputedStyle(element).getPropertyValue(`--chakra-colors-${token}`).trim();
  const shade = document.documentElement.classList.contains("dark") ? SHADES.dark : SHADES.light;
  const axis = { stroke: color("fg-muted"), ticks: { show: false }, grid: { stroke: color("border-muted"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.08 : 1] } },
    axes: [
      // Below the last label of the other axis, also where the plot is narrow.
      { ...axis, gap: 10 },
      { ...axis, size: 74, values: (_, values) => values.map(format), ...(binary ? { incrs: BINARY } : {}) },
    ],
    cursor: { drag: { x: false, y: false } },
    series: [
      { label: "", value: (_, at) => (at ? new Date(at * 1000).toLocaleString() : "") },
      ...labels.map((label, index) => ({
        label,
        stroke: color(`${COLORS[index]}-${shade}`),
        width: 1.5,
        points: { show: false },
        value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
      })),
    ],
  };
}

function useWidth(box) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, [box]);
  return width;
}

// Light or dark: a canvas does not follow the theme by itself.
function useTheme() {
  const [theme, setTheme] = useState(() => document.documentElement.className);
  useEffect(() => {
    const seen = new MutationObserver(() => setTheme(document.documentElement.className));
    seen.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    return () => seen.disconnect();
  }, []);
  return theme;
}
