"""`logyard groups`: what is refused before anybody is asked."""

from typing import Any

import pytest

from logyard.cli import options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe",), "name the groups"),
        (("describe", "--group", "g", "--all-groups"), "name the groups"),
        (("describe", "--group", "g", "--members", "--state"), "give only one of"),
        (("delete",), "name the groups"),
        (("list", "--states", "odd"), "Valid states are"),
        (("reset-offsets", "--group", "g", "--all-topics"), "requires one of the following scenarios"),
        (("reset-offsets", "--group", "g", "--to-earliest"), "One of the reset scopes"),
        (
            ("reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--shift-by", "0"),
            "only one of --to-earliest, --shift-by\n",
        ),
        (
            ("reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"),
            "either --execute or --dry-run",
        ),
        (("reset-offsets", "--group", "g", "--from-file", "/none"), "--from-file /none: No such file"),
    ],
)
def test_misuse(run: Any, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        def __init__(self, settings: object) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(options, "open_requests", Nobody)
    status, out, err = run("groups", *words, "--bootstrap-server", "b:1")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
