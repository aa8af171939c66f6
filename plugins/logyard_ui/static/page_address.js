// Where the reader is, all of it in the address: view, topic, search, order. So a link can be shared and Back works.

import { RouterLink, UI, h, useCallback, useMemo, useNavigate, useSearchParams } from "./airflow_ui.js";

export const DEFAULT_CONNECTION = "logyard_default";
// The view's route in Airflow's UI (plugin.py declares it).
export const PAGE = "/plugin/logyard";
const VIEWS = ["overview", "topics", "brokers", "map", "groups", "reassignments"];
const ONES = ["topic", "broker", "group"];

// What stays when the reader goes on to another view.
const KEPT = ["conn_id"];

export function search(place) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(place)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") query.append(name, String(one));
    }
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

// {conn, view, get, all, to, stay}: `all(name)` are its values where there are several, `to(place)` is another place (a
// link's `to`), `stay(changes)` changes this one in place.
export function usePlace() {
  const [query, setQuery] = useSearchParams();
  const conn = query.get("conn_id") || DEFAULT_CONNECTION;
  const view = viewOf(query);
  const get = useCallback((name) => query.get(name) ?? "", [query]);
  const all = useCallback((name) => query.getAll(name), [query]);
  const to = useCallback(
    (place) => {
      const kept = Object.fromEntries(KEPT.map((name) => [name, query.get(name)]));
      return { pathname: PAGE, search: search({ ...kept, ...place }) };
    },
    [query],
  );
  const stay = useCallback(
    (changes, { replace = true } = {}) =>
      setQuery((old) => new URLSearchParams(search({ ...several(old), ...changes })), { replace }),
    [setQuery],
  );
  return useMemo(() => ({ conn, view, get, all, to, stay }), [conn, view, get, all, to, stay]);
}

function several(query) {
  return Object.fromEntries([...query.keys()].map((name) => [name, query.getAll(name)]));
}

function viewOf(query) {
  const asked = query.get("view");
  if (VIEWS.includes(asked)) return asked;
  // A task that touched several topics links to a list of them.
  if (query.getAll("topic").length > 1) return "topics";
  // One of a list needs its name; a link from a task says only that.
  const one = ONES.filter((name) => query.get(name));
  return one.includes(asked) ? asked : (one[0] ?? "overview");
}

// A link for the rows of tables, by the hundred: a plain one. `useFollowing`, once at the root of all of them, makes
// it a move within the UI.
export function rowLink(to, text, more) {
  return h("a", { href: HERE + to.search, "data-place": to.search, title: text, ...more }, text);
}

const HERE = new URL(PAGE.slice(1), document.baseURI).href;

export function useFollowing() {
  const navigate = useNavigate();
  return useCallback(
    (event) => {
      const link = event.target.closest?.("a[data-place]");
      const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
      if (!link || !plain || event.defaultPrevented) return;
      event.preventDefault();
      navigate({ pathname: PAGE, search: link.dataset.place });
    },
    [navigate],
  );
}

// A link of Airflow's look that moves within the UI.
export function Go({ to, children, ...rest }) {
  return h(UI.Link, { asChild: true, color: "fg.info", ...rest }, h(RouterLink, { to }, children));
}
