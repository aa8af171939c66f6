// A text field that suggests names of topics, groups or brokers while somebody types; several names, where a field
// takes several, are separated by commas.

import { pageApi } from "./api.js";
import { Fragment, UI, h, useEffect, useId, useRef, useState } from "./airflow_ui.js";
import { useCluster } from "./cluster_context.js";
import { usePolled } from "./polling.js";
import { offered, wantedOf } from "./suggested_names.js";

const PAUSE_MS = 150;

// `kind`: topics, groups or brokers; `several`: whether the field takes a list; `of`: another connection than the
// chosen one.
export function SuggestingInput({ kind, several = false, of, value, ...rest }) {
  const { conn: here } = useCluster();
  const conn = of || here;
  const id = useId();
  const [asked, setAsked] = useState("");
  const [active, setActive] = useState(false);
  const wanted = wantedOf(value, several);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(wanted), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  const { data: answer } = usePolled(active ? pageApi("search", { conn_id: conn, q: asked, kind, limit: 20 }) : "", 0);
  // The last answer, until the next one is there: the list does not vanish at each letter.
  const kept = useRef(null);
  if (answer) kept.current = answer;
  const data = kept.current;
  return h(
    Fragment,
    null,
    h(UI.Input, {
      ...rest,
      value,
      list: id,
      autoComplete: "off",
      spellCheck: false,
      onFocus: () => setActive(true),
    }),
    h(
      "datalist",
      { id },
      offered(data, kind, value, several).map((text) => h("option", { key: text, value: text })),
    ),
  );
}
