"""docs/state-machines.md matches the code; LOGYARD_REWRITE=1 draws it again."""

import os
from pathlib import Path

from tests.support.state_machine_pages import page

PAGE = Path(__file__).parents[4] / "docs" / "state-machines.md"


def test_the_page_is_drawn_from_the_code() -> None:
    drawn = page()
    if os.environ.get("LOGYARD_REWRITE"):
        PAGE.write_text(drawn, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == drawn


def test_every_phase_and_move_is_on_it() -> None:
    drawn = page()
    for arrow in ("NEW --> ONLINE", "OFFLINE --> NON_EXISTENT", "DELETION_STARTED --> DELETION_INELIGIBLE"):
        assert arrow in drawn
    assert "NON_EXISTENT --> ONLINE" not in drawn
