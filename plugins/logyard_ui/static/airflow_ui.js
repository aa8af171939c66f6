// What Airflow's UI provides for plugins: React, its router, and Chakra with Airflow's theme. So there is no build
// step, and light and dark mode follow the rest of the UI.
//
// Names and values of a cluster become text nodes only: React escapes them, and nothing here sets HTML.

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
