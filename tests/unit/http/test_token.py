"""The token of a plain HTTP side, in its file."""

from pathlib import Path

import pytest

from logyard.broker.http import token


def test_it_is_made_once(tmp_path: Path) -> None:
    made = token.load_or_create(str(tmp_path))
    assert token.load_or_create(str(tmp_path)) == made
    assert token.matches(f"Bearer {made}", made)
    assert not token.matches(None, made)


@pytest.mark.parametrize("content", ["", "\n", "short"])
def test_a_file_that_is_cut_short_lets_nobody_in(tmp_path: Path, content: str) -> None:
    """With an empty one a request without any token had the right one."""
    (tmp_path / token.TOKEN_FILE).write_text(content)
    made = token.load_or_create(str(tmp_path))
    assert not token.matches(None, made)
    assert not token.matches(f"Bearer {content.strip()}", made)
    assert token.load_or_create(str(tmp_path)) == made
