// One box that finds topics, groups and brokers. "/" goes to it, arrows choose, Enter opens, Escape leaves.

import { pageApi } from "./api.js";
import { Fragment, UI, h, useEffect, useId, useNavigate, useRef, useState } from "./airflow_ui.js";
import { usePolled } from "./polling.js";
import { entries, left, moved } from "./search_entries.js";

const { Box, Flex, Input, Text } = UI;
const PAUSE_MS = 120;

export function SearchBox({ place }) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const wanted = useSettled(text.trim());
  const asked = open && wanted !== "";
  const { data, problem } = usePolled(asked ? pageApi("search", { conn_id: place.conn, q: wanted }) : "", 0);
  const found = useLast(asked, data);
  const box = useRef(null);
  const input = useRef(null);
  const id = useId();
  const navigate = useNavigate();
  const listed = entries(asked ? found : null);
  const chosen = Math.min(at, listed.length - 1);
  useSlash(input);
  useEffect(() => setAt(0), [wanted]);
  const leave = () => {
    setOpen(false);
    setText("");
    input.current?.blur();
  };
  const go = (entry) => {
    leave();
    navigate(place.to(entry.place));
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && chosen >= 0 && wanted === text.trim()) go(listed[chosen]);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") setAt(moved(event.key, chosen, listed.length));
    else return;
    event.preventDefault();
  };
  return h(
    Box,
    {
      ref: box,
      position: "relative",
      width: { base: "full", md: "18rem" },
      onBlur: (event) => !box.current?.contains(event.relatedTarget) && setOpen(false),
    },
    h(Input, {
      ref: input,
      size: "sm",
      type: "search",
      role: "combobox",
      placeholder: "Find a topic, group or broker  ( / )",
      "aria-label": "Find a topic, group or broker",
      "aria-expanded": listed.length > 0,
      "aria-controls": id,
      "aria-autocomplete": "list",
      "aria-activedescendant": chosen >= 0 ? `${id}-${chosen}` : undefined,
      autoComplete: "off",
      spellCheck: false,
      maxLength: 250,
      value: text,
      onFocus: () => setOpen(true),
      onChange: (event) => {
        setText(event.target.value);
        setOpen(true);
      },
      onKeyDown,
    }),
    asked && h(List, { id, listed, chosen, go, said: said(found, problem), more: left(found) }),
  );
}

function said(found, problem) {
  if (problem) return problem.message;
  if (!found) return "Looking …";
  if (found.problems?.groups) return `Groups are not known: ${found.problems.groups}`;
  if (found.pending?.length) return "Groups are still being read …";
  return entries(found).length === 0 ? "Nothing has that name." : "";
}

function List({ id, listed, chosen, go, said: text, more }) {
  return h(
    Box,
    {
      position: "absolute",
      insetInline: "0",
      top: "calc(100% + 4px)",
      zIndex: "dropdown",
      bg: "bg.panel",
      borderWidth: "1px",
      borderRadius: "md",
      boxShadow: "lg",
      paddingY: "1",
      maxHeight: "70vh",
      overflowY: "auto",
      minWidth: { md: "24rem" },
    },
    h(
      Box,
      { id, role: "listbox", "aria-label": "Found" },
      listed.map((entry, index) =>
        h(
          Fragment,
          { key: entry.id },
          entry.kind !== listed[index - 1]?.kind &&
            h(
              Text,
              { paddingX: "3", paddingTop: "2", fontSize: "xs", color: "fg.muted", "aria-hidden": true },
              entry.kind,
            ),
          h(Option, { id: `${id}-${index}`, entry, chosen: index === chosen, go }),
        ),
      ),
    ),
    (text || more) &&
      h(
        Text,
        { paddingX: "3", paddingY: "2", fontSize: "xs", color: "fg.muted", role: "status" },
        [text, more].filter(Boolean).join(" "),
      ),
  );
}

function Option({ id, entry, chosen, go }) {
  const option = useRef(null);
  useEffect(() => {
    if (chosen) option.current?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return h(
    Flex,
    {
      ref: option,
      id,
      role: "option",
      "aria-selected": chosen,
      gap: "3",
      justifyContent: "space-between",
      paddingX: "3",
      paddingY: "1.5",
      fontSize: "sm",
      cursor: "pointer",
      bg: chosen ? "bg.emphasized" : undefined,
      _hover: { bg: "bg.muted" },
      // Before the input loses the focus, which closes the list.
      onMouseDown: (event) => {
        event.preventDefault();
        go(entry);
      },
    },
    h(Text, { truncate: true, title: entry.label }, entry.label),
    h(Text, { color: "fg.muted", fontSize: "xs", whiteSpace: "nowrap" }, entry.note),
  );
}

// The text once nobody has typed for a moment.
function useSettled(text) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

// The last answer, until the next one is there: the list does not vanish at each letter.
function useLast(asked, data) {
  const kept = useRef(null);
  if (!asked) kept.current = null;
  else if (data) kept.current = data;
  return kept.current;
}

function useSlash(input) {
  useEffect(() => {
    const onKey = (event) => {
      const typing = event.target.closest?.("input, textarea, select, [contenteditable], [role=dialog]");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [input]);
}
