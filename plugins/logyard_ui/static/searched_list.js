// A list that the server searches, because it may be longer than what is sent: its search, its table, what is missing.

import { number, plural } from "./format.js";
import { React, UI, h, useRef } from "./airflow_ui.js";
import { Empty, Loaded, MissingParts, Notice } from "./components.js";
import { useCluster, useRoute } from "./cluster_context.js";
import { useDelayedText } from "./delayed_text.js";
import { Search, Table } from "./table.js";

const { Flex, Text } = UI;
const EVERY_MS = 10000;

// `route`: its answer has {refused, total, found, [route]: rows}; `one`: what a row is; `label`: of several; `nothing`:
// what is said where there is no row at all; `children`: the buttons.
export function SearchedList({ route, one, label, columns, rowKey, order, nothing, children }) {
  const { place } = useCluster();
  const [typed, setTyped] = useDelayedText(place, "q");
  const answer = useKept(useRoute(route, { q: place.get("q").slice(0, 250) }, EVERY_MS));
  const { data } = answer;
  // Brokers tell nothing here, so they would take no change either.
  const empty = Boolean(data?.refused) && data.total === 0;
  return h(
    Flex,
    { direction: "column", gap: "3", flex: "1", minHeight: "0" },
    h(
      Flex,
      { gap: "3", wrap: "wrap", justifyContent: "space-between" },
      h(
        Search,
        { label: `Search ${label}`, value: typed, onChange: setTyped },
        data && !empty && h(Text, { color: "fg.muted", fontSize: "sm", role: "status" }, counted(data, one)),
      ),
      !empty && h(Flex, { gap: "2", wrap: "wrap" }, children),
    ),
    h(Loaded, { answer, what: label }, (found) =>
      h(
        React.Fragment,
        null,
        found.refused && h(Notice, { status: "warning" }, found.refused),
        h(MissingParts, { data: found }),
        found.total > 0
          ? h(Table, {
              name: label,
              columns,
              rows: found[route],
              rowKey,
              order: place.get("sort") || order,
              onOrder: (sort) => place.stay({ sort }),
              fill: true,
              cards: true,
              empty: "Nothing matches.",
            })
          : !found.refused && h(Empty, { title: nothing }),
        found.found > found[route].length &&
          h(
            Text,
            { color: "fg.muted", fontSize: "sm" },
            `The first ${number(found[route].length)} of ${number(found.found)}: search for the others.`,
          ),
      ),
    ),
  );
}

function counted({ total, found }, one) {
  return found === total ? plural(total, one) : `${number(found)} of ${plural(total, one)}`;
}

// The last answer stays until that of another search is there: the list does not vanish at each letter.
function useKept(answer) {
  const kept = useRef(null);
  if (answer.data) kept.current = answer.data;
  return answer.data || answer.problem ? answer : { ...answer, data: kept.current };
}
