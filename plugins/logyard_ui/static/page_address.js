// The page's state is in its address: view, topic, search, order. So a link can be shared, and Back works.

import { RouterLink, UI, h, useCallback, useMemo, useNavigate, useSearchParams } from "./airflow_ui.js";

export const DEFAULT_CONNECTION = "logyard_default";
// The view's route in Airflow's UI (plugin.py declares it).
export const PAGE = "/plugin/logyard";
const VIEWS = [
  ...["overview", "findings", "topics", "brokers", "map", "groups", "reassignments"],
  ...["acls", "users", "quotas", "clusters"],
];
const ONES = ["topic", "broker", "group"];

// What stays in the address when another view is opened.
const KEPT = ["conn_id", "internal"];

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

// {conn, view, get, all, to, stay}: `all(name)` are the values of a name that may occur several times, `to(place)` is
// the `to` of a link to another place, `stay(changes)` changes the current address.
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
  if (asked === "compare") return asked;
  if (asked === "records" && query.get("topic")) return asked;
  // A task that worked on several topics links to a list of them.
  if (query.getAll("topic").length > 1) return "topics";
  // The view of one topic, broker or group needs its name; a link from a task has only the name.
  const one = ONES.filter((name) => query.get(name));
  return one.includes(asked) ? asked : (one[0] ?? "overview");
}

// A link in a table's row: a plain element, since there may be hundreds. `useRowLinks`, once at their root, opens them
// within the UI.
export function rowLink(to, text, more) {
  return h("a", { href: HERE + to.search, "data-place": to.search, title: text, ...more }, text);
}

const HERE = new URL(PAGE.slice(1), document.baseURI).href;

export function useRowLinks() {
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

// A link in Airflow's style that opens a place within the UI.
export function PageLink({ to, children, ...rest }) {
  return h(UI.Link, { asChild: true, color: "fg.info", ...rest }, h(RouterLink, { to }, children));
}
