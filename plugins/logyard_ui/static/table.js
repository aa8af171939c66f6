// One table for all lists, sorted by a click. Only the visible rows are in the document, so that 10,000 rows scroll as
// fast as ten. Rows are plain elements styled by the table: hundreds of styled components are too slow.

import { compare, plainly } from "./format.js";
import { Fragment, React, UI, h, memo, useCallback, useLayoutEffect, useMemo, useRef, useState } from "./airflow_ui.js";

export const ROW = 34;
// Rows above and below the visible ones.
const SPARE = 12;
// Up to this many rows, all are rendered and may have any height.
const MANY = 100;
// Up to this many rows, a table is as high as they are, also where they are cards.
const FEW = 10;

const STYLE = {
  "& table": { width: "100%", borderCollapse: "separate", borderSpacing: 0, tableLayout: "fixed", fontSize: "sm" },
  "& th, & td": {
    paddingInline: "2.5",
    textAlign: "start",
    overflow: "hidden",
    textOverflow: "ellipsis",
    borderBottomWidth: "1px",
    borderColor: "border.muted",
    verticalAlign: "middle",
  },
  "& th": {
    position: "sticky",
    top: 0,
    zIndex: 1,
    bg: "bg.muted",
    color: "fg.muted",
    fontWeight: "semibold",
    whiteSpace: "nowrap",
    height: `${ROW}px`,
  },
  "& td": { height: `${ROW}px`, paddingBlock: "1" },
  "&[data-many] td": { whiteSpace: "nowrap", paddingBlock: 0 },
  "& tbody tr:hover td": { bg: "bg.subtle" },
  "& [data-middle]": { textAlign: "center" },
  "& [data-end]": { textAlign: "end", fontVariantNumeric: "tabular-nums" },
  "& th button": { cursor: "pointer", font: "inherit", color: "inherit", display: "inline-flex", gap: "1" },
  "& button:focus-visible, & a:focus-visible": {
    outline: "2px solid",
    outlineColor: "border.info",
    outlineOffset: "1px",
  },
  "& td button": { cursor: "pointer", color: "fg.info", paddingInlineEnd: "3" },
  "& td button[data-danger]": { color: "fg.error" },
  "& td button:hover": { textDecoration: "underline" },
  "& a": { color: "fg.info" },
  "& a:hover": { textDecoration: "underline" },
  "& [data-bad]": { color: "fg.error", fontWeight: "semibold" },
  "& [data-quiet]": { color: "fg.muted" },
  // A long list is scrolled sideways on a phone: what a row's buttons are in stays in sight.
  "@media (max-width: 480px)": {
    "&[data-many] td:last-child:has(button)": { position: "sticky", insetInlineEnd: 0, bg: "bg" },
  },
};
// On a phone: a row is a card, a cell a line with its column's name. A table within a cell stays one.
const ROWS = "& > table > tbody > tr";
const CARDS = {
  "@media (max-width: 480px)": {
    "& > table": { minWidth: "0 !important", tableLayout: "auto" },
    [`& > table, & > table > tbody, ${ROWS}`]: { display: "block" },
    "& > table > colgroup": { display: "none" },
    // Hidden from the eye only.
    "& > table > thead": {
      position: "absolute",
      width: "1px",
      height: "1px",
      overflow: "hidden",
      clipPath: "inset(50%)",
    },
    [ROWS]: { paddingBlock: "2", borderBottomWidth: "1px", borderColor: "border.muted" },
    [`${ROWS} > td`]: {
      display: "flex",
      gap: "3",
      height: "auto",
      borderBottomWidth: 0,
      textAlign: "start",
      whiteSpace: "normal",
      wordBreak: "break-word",
    },
    [`${ROWS} > td::before`]: {
      content: "attr(data-label)",
      flex: "0 0 6.5rem",
      color: "fg.muted",
      fontWeight: "normal",
      textAlign: "start",
    },
    [`${ROWS} > td > *`]: { minWidth: 0 },
    [`${ROWS} > td[data-label='']::before`]: { content: "none" },
    [`${ROWS} > td:empty`]: { display: "none" },
  },
};

// Columns: {id, label, cell(row) to show, value(row) to sort by (without it the column is not sortable), width in rem
// (without it the column gets what is left, `least` rem at least), end (to the right) or middle}.
// `order` is a column's id, with "-" before it for the largest first. `maxHeight` limits the height of a long list.
// `cards`: on a phone rows are cards, where there are not many; else it is scrolled sideways.
export function Table({
  name,
  columns,
  rows,
  rowKey,
  order = "",
  onOrder,
  maxHeight = "70vh",
  fill = false,
  empty,
  cards = false,
}) {
  const sorted = useSorted(rows, columns, order);
  const box = useRef(null);
  const many = sorted.length > MANY;
  const [first, last] = useWindow(box, sorted.length, many);
  const seen = many ? sorted.slice(first, last) : sorted;
  // What fills the view keeps some rows in sight where little is left of it, as on a phone.
  const kept = { flex: "0 1 auto", minHeight: `${Math.min(sorted.length + 2, 8) * ROW}px` };
  const height = fill ? kept : sorted.length > FEW ? { maxHeight } : {};
  return h(
    UI.Box,
    {
      ref: box,
      css: cards && !many ? { ...STYLE, ...CARDS } : STYLE,
      "data-many": many ? "" : undefined,
      overflow: "auto",
      // Changing rows lay out this box only.
      contain: "layout paint",
      borderWidth: "1px",
      borderColor: "border",
      borderRadius: "md",
      tabIndex: many ? 0 : undefined,
      role: many ? "region" : undefined,
      "aria-label": many ? `${name}, scrolled` : undefined,
      ...height,
    },
    h(
      "table",
      { "aria-label": name, "aria-rowcount": sorted.length + 1, style: { minWidth: `${least(columns)}rem` } },
      h(
        "colgroup",
        null,
        columns.map((column) => h("col", { key: column.id, style: { width: column.width } })),
      ),
      h(
        "thead",
        null,
        h(
          "tr",
          { "aria-rowindex": 1 },
          columns.map((column) => h(Heading, { key: column.id, column, order, onOrder })),
        ),
      ),
      h(
        "tbody",
        null,
        many && h(Space, { rows: first, columns: columns.length }),
        seen.map((row, index) => h(Row, { key: rowKey(row), row, columns, index: (many ? first : 0) + index + 2 })),
        many && h(Space, { rows: sorted.length - last, columns: columns.length }),
      ),
    ),
    sorted.length === 0 && h(UI.Box, { padding: "4", color: "fg.muted" }, empty ?? "There is nothing here."),
  );
}

function side({ end, middle }) {
  return end ? { "data-end": "" } : middle ? { "data-middle": "" } : {};
}

// In rem: below it the table scrolls sideways, so that no column is squeezed to nothing.
function least(columns) {
  return columns.reduce((sum, { width, least: own = 9 }) => sum + (width ? Number.parseFloat(width) : own), 0);
}

function Heading({ column, order, onOrder }) {
  const descending = order === `-${column.id}`;
  const here = descending || order === column.id;
  if (!column.value || !onOrder) return h("th", { scope: "col", ...side(column) }, column.label);
  const turn = here ? (descending ? column.id : `-${column.id}`) : column.end ? `-${column.id}` : column.id;
  return h(
    "th",
    { scope: "col", ...side(column), "aria-sort": here ? (descending ? "descending" : "ascending") : "none" },
    h(
      "button",
      { type: "button", onClick: () => onOrder(turn), title: `Sort by ${column.label.toLowerCase()}` },
      column.label,
      here && h("span", { "aria-hidden": true }, descending ? "↓" : "↑"),
    ),
  );
}

const Row = memo(function Row({ row, columns, index }) {
  return h(
    "tr",
    { "aria-rowindex": index },
    columns.map((column) =>
      h("td", { key: column.id, "data-label": column.label, ...side(column) }, plainCell(column.cell(row))),
    ),
  );
});

// What a cell shows, with the texts in it told plainly: most are names, which anybody may have chosen. A component's
// own texts are its own matter: what is in records is shown as it is.
export function plainCell(shown) {
  if (typeof shown === "string") return plainly(shown);
  if (Array.isArray(shown)) {
    const told = shown.map(plainCell);
    return told.every((one, place) => one === shown[place]) ? shown : told;
  }
  if (!React.isValidElement(shown)) return shown;
  const { children, title } = shown.props;
  const [inside, hint] = [plainCell(children), plainCell(title)];
  if (inside === children && hint === title) return shown;
  const changed = hint === title ? null : { title: hint };
  return React.cloneElement(shown, changed, ...(Array.isArray(inside) ? inside : [inside]));
}

function Space({ rows, columns }) {
  if (rows <= 0) return null;
  return h(
    "tr",
    { "aria-hidden": true },
    h("td", { colSpan: columns, style: { height: rows * ROW, padding: 0, border: 0 } }),
  );
}

function useSorted(rows, columns, order) {
  return useMemo(() => {
    const id = order.replace(/^-/, "");
    const column = columns.find((candidate) => candidate.id === id && candidate.value);
    if (!column) return rows;
    const way = order.startsWith("-") ? -1 : 1;
    // Each value once, not once for each comparison.
    const keyed = rows.map((row, place) => [column.value(row), place, row]);
    keyed.sort((left, right) => way * compare(left[0], right[0]) || left[1] - right[1]);
    return keyed.map((entry) => entry[2]);
  }, [rows, columns, order]);
}

// [first, last) of the rows that are in sight or nearly so.
function useWindow(box, count, many) {
  const [range, setRange] = useState([0, MANY]);
  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - SPARE);
    const last = Math.min(count, Math.ceil((element.scrollTop + element.clientHeight) / ROW) + SPARE);
    // In steps: not every pixel draws anew.
    const step = SPARE / 2;
    const next = [Math.floor(first / step) * step, Math.min(count, Math.ceil(last / step) * step)];
    setRange((old) => (old[0] === next[0] && old[1] === next[1] ? old : next));
  }, [box, count]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!many || !element) return undefined;
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const sizes = new ResizeObserver(measure);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      sizes.disconnect();
    };
  }, [box, many, measure]);
  return range;
}

// What narrows a table, above it.
export function Search({ label, value, onChange, children }) {
  return h(
    UI.Flex,
    { gap: "4", alignItems: "center", wrap: "wrap", flex: "1" },
    h(UI.Input, {
      type: "search",
      size: "sm",
      width: { base: "full", sm: "18rem" },
      placeholder: label,
      "aria-label": label,
      value,
      onChange: (event) => onChange(event.target.value),
    }),
    h(Fragment, null, children),
  );
}
