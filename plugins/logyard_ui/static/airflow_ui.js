// What Airflow's UI lends its plugins: React, its router and Chakra, with Airflow's own theme around them. So nothing
// has to be built, and light and dark follow the rest of the UI.
//
// Names and values of a cluster only ever become text nodes: React escapes them, and nothing here sets HTML.

export const React = globalThis.React;
export const UI = globalThis.ChakraUI;
export const { Link: RouterLink, useLocation, useNavigate, useSearchParams } = globalThis.ReactRouterDOM;
export const {
  createElement: h,
  Fragment,
  memo,
  useCallback,
  useEffect,
  useLayoutEffect,
  useId,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} = React;
