// Polling. An address is requested once, however many components use it; a hidden tab requests nothing; an unchanged
// answer (ETag) is neither sent nor rendered again; after errors the requests become rarer.

import { fetchJson } from "./api.js";
import { useCallback, useEffect, useSyncExternalStore } from "./airflow_ui.js";

const EVERY_MS = 3000;
const RARELY_MS = 30000;
// The most times that the pause is doubled.
const MOST = 4;
// Answers kept after their last component is gone, so that Back shows them at once.
const KEPT = 12;

const NOTHING = Object.freeze({ data: null, problem: null, loading: false });
const sources = new Map();

class Source {
  constructor(url) {
    this.url = url;
    // Listener → how often it wants to know, in ms; 0: once.
    this.listeners = new Map();
    this.state = { data: null, problem: null, loading: true };
    this.etag = "";
    this.timer = 0;
    this.answered = 0;
    this.failures = 0;
    this.asking = null;
    this.again = false;
    this.left = false;
    this.subscribe = this.subscribe.bind(this);
    this.onVisible = this.onVisible.bind(this);
  }

  subscribe(listener, every) {
    this.listeners.set(listener, every);
    this.left = false;
    if (this.listeners.size === 1) {
      document.addEventListener("visibilitychange", this.onVisible);
      this.ask();
    } else {
      this.plan();
    }
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.rest();
      else this.plan();
    };
  }

  // The most often that a listener wants to know; 0 where none wants to know again.
  every() {
    const wanted = [...this.listeners.values()].filter((every) => every > 0);
    return wanted.length > 0 ? Math.min(...wanted) : 0;
  }

  rest() {
    this.left = true;
    document.removeEventListener("visibilitychange", this.onVisible);
    clearTimeout(this.timer);
    this.asking?.abort();
    this.asking = null;
  }

  onVisible() {
    if (!document.hidden) this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    this.again = this.asking !== null;
    if (document.hidden || this.again) return;
    const asking = new AbortController();
    this.asking = asking;
    try {
      const { body, etag } = await fetchJson(this.url, { etag: this.etag, signal: asking.signal });
      this.failures = 0;
      this.etag = etag;
      if (body !== null || this.state.problem)
        this.set({ data: body ?? this.state.data, problem: null, loading: false });
    } catch (problem) {
      if (asking.signal.aborted) return;
      // An error of the request itself (4xx) will hardly be gone in a moment.
      this.failures = problem.status >= 400 && problem.status < 500 ? MOST : Math.min(this.failures + 1, MOST);
      this.set({ ...this.state, problem, loading: false });
    }
    if (this.asking !== asking) return;
    this.asking = null;
    this.answered = performance.now();
    if (this.listeners.size === 0) return;
    if (this.again) this.ask();
    else this.plan();
  }

  // Ask again, counted from the last answer. One that is pending (504) or failed is requested again, even where nothing
  // is polled.
  plan() {
    clearTimeout(this.timer);
    const every = this.every();
    const asks = every > 0 || this.failures > 0 || this.state.data?.pending?.length > 0;
    if (this.asking || !asks) return;
    const pause = Math.min(Math.max(RARELY_MS, every), (every || EVERY_MS) * 2 ** this.failures);
    this.timer = setTimeout(() => this.ask(), Math.max(0, this.answered + pause - performance.now()));
  }

  set(state) {
    this.state = state;
    for (const listener of [...this.listeners.keys()]) listener();
  }
}

function sourceOf(url) {
  let source = sources.get(url);
  if (!source) {
    for (const [old, candidate] of sources) {
      if (sources.size < KEPT) break;
      if (candidate.left) sources.delete(old);
    }
    source = new Source(url);
    sources.set(url, source);
  }
  return source;
}

// {data, problem, loading} of an address, polled while the component is shown; nothing for an empty address.
export function usePolled(url, every = EVERY_MS) {
  const source = url ? sourceOf(url) : null;
  const subscribe = useCallback(
    (listener) => (source ? source.subscribe(listener, every) : () => {}),
    [source, every],
  );
  return useSyncExternalStore(subscribe, () => (source ? source.state : NOTHING));
}

// The same for a list whose version is known from elsewhere (`overview`): requested again when its version differs.
export function useVersioned(url, version) {
  const live = usePolled(url, 0);
  const own = live.data?.version;
  useEffect(() => {
    if (version && own && version !== own) sources.get(url)?.ask();
  }, [url, version]);
  return live;
}

// Request everything that is shown again now, after an action.
export function refresh() {
  for (const source of sources.values()) if (source.listeners.size > 0) source.ask();
}
