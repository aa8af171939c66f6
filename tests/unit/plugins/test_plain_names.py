"""What people decide by shows every character of the names in it."""

from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parents[3] / "plugins" / "logyard_ui" / "static"


def test_names_in_what_is_decided_hide_nothing(pure: Any) -> None:
    """A group's name may be any text: one that turns the direction would show the rest of a sentence the wrong way."""
    asked = "[m.plainly('Delete a\\u202eb\\u200b\\u0000\\u2066'), m.plainly('Grüße, 東京 עברית\\n😀')]"
    assert pure("format.js", asked) == ["Delete a\\u202eb\\u200b\\u0000\\u2066", "Grüße, 東京 עברית\n😀"]


def test_what_is_reviewed_is_told_plainly() -> None:
    text = (STATIC / "action_dialog.js").read_text()
    assert "plainly(line)" in text
    assert "plainly(JSON.stringify(conf" in text


REACT = """
const createElement = (type, props, ...rest) =>
  ({ is: 1, type, props: { ...props, ...(rest.length && { children: rest.length > 1 ? rest : rest[0] }) } });
globalThis.React = {
  createElement,
  isValidElement: (one) => one?.is === 1,
  cloneElement: (one, props, ...rest) => createElement(one.type, { ...one.props, ...props }, ...rest),
  memo: (one) => one,
};
globalThis.ReactRouterDOM = {};
const h = createElement;
"""


def test_names_in_tables_hide_nothing(pure: Any) -> None:
    """Groups, clients and users may have any text as their name, and a cell was shown as it is."""
    link = "h('a', { href: '?group=a\u202eb', title: 'a\u202eb' }, 'a\u202eb')"
    asked = f"[m.plainCell('a\u202eb'), m.plainCell(7), m.plainCell(null), m.plainCell({link})]"
    shown = {"href": "?group=a\u202eb", "title": "a\\u202eb", "children": "a\\u202eb"}
    assert pure("table.js", asked, REACT) == ["a\\u202eb", 7, None, {"is": 1, "type": "a", "props": shown}]
    nested = "m.plainCell(h('div', null, ['x', h('b', { key: 1 }, 'y\u2066')], ' z\u200b')).props.children"
    told = ["x", {"is": 1, "type": "b", "props": {"key": 1, "children": "y\\u2066"}}]
    assert pure("table.js", nested, REACT) == [told, " z\\u200b"]


def test_a_cell_that_hides_nothing_is_left_alone(pure: Any) -> None:
    cell = "h('div', { title: 'עברית' }, [h('b', null, '東京')], 'a\\nb')"
    assert pure("table.js", f"((cell) => m.plainCell(cell) === cell)({cell})", REACT) is True
