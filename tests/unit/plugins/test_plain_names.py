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
