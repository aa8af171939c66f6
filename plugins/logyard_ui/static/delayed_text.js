// A text field whose text is written to the address after a pause, so that not every key renders the whole UI.

import { useCallback, useEffect, useRef, useState } from "./airflow_ui.js";

const PAUSE_MS = 250;

export function useDelayedText(place, name) {
  const there = place.get(name);
  const [text, setText] = useState(there);
  const written = useRef(there);
  const timer = useRef(0);
  useEffect(() => {
    // The address changed by itself: a link, or Back.
    if (there !== written.current) {
      written.current = there;
      setText(there);
    }
  }, [there]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = useCallback(
    (value) => {
      setText(value);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        written.current = value;
        place.stay({ [name]: value });
      }, PAUSE_MS);
    },
    [place, name],
  );
  return [text, type];
}
