"""Curves: how fast a figure grows, its plot, and the page that is made of both."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.benchmarks.curves import page, points
from tests.benchmarks.curves.plot import draw, short
from tests.benchmarks.curves.points import Curve, growth


@pytest.mark.parametrize(
    ("found", "exponent"),
    [
        ([(10, 5), (100, 50)], 1.0),
        ([(10, 5), (100, 500)], 2.0),
        ([(10, 5), (100, 5)], 0.0),
        ([(1, 1), (100, 900), (10, 9)], 2.0),
    ],
)
def test_growth_is_that_of_the_last_two_sizes(found: list[tuple[float, float]], exponent: float) -> None:
    assert growth(found) == pytest.approx(exponent)


def test_one_size_does_not_grow() -> None:
    assert growth([(10, 5)]) is None
    assert growth([(10, 0), (100, 5)]) is None


def test_a_plot_has_a_line_for_each_figure_and_a_place_for_each_point() -> None:
    root = ET.fromstring(draw({"a & b": [(10, 1), (1000, 100)], "c": [(10, 3), (1000, 3)]}, "things"))
    space = "{http://www.w3.org/2000/svg}"
    lines = [line.get("points") for line in root.iter(f"{space}polyline")]
    assert len(lines) == 2
    assert len(list(root.iter(f"{space}circle"))) == 4
    words = [text.text for text in root.iter(f"{space}text")]
    assert {"a & b", "c", "things", "10", "1 k"} <= set(words)
    # Equal costs lie on one height, and a larger size lies to the right.
    (x1, y1), (x2, y2) = (map(float, place.split(",")) for place in str(lines[1]).split())
    assert y1 == y2
    assert x1 < x2


def test_a_value_that_is_none_has_no_place() -> None:
    assert "circle" in draw({"a": [(10, 0), (100, 1)]}, "n")
    assert [short(each) for each in (0.1, 1, 1e3, 1e5, 1e6)] == ["0.1", "1", "1 k", "100 k", "1 M"]


def test_what_grows_faster_than_its_size_is_bold_and_what_has_no_place_is_refused() -> None:
    curve = Curve("c", "things", {"ms": [(10, 1), (100, 100)], "MB": [(10, 1), (100, 10)]}, {"load": [1, 2, 3]})
    text, plots = page.render({"c": curve}, "# Title\n\n<!-- curve c -->\n<!-- curve later -->\n")
    assert "| ms | 1 | 100 | **2.00** |" in text
    assert "| MB | 1 | 10 | 1.00 |" in text
    assert "Not measured yet." in text
    assert set(plots) == {"c.svg"}
    with pytest.raises(ValueError, match="no place for c"):
        page.render({"c": curve}, "nothing")


def test_a_part_that_is_measured_again_replaces_its_points(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    for value in (1.0, 2.0):
        points.keep(Curve("c", "things", {"ms": [(10, value)]}, {"load": []}), path)
        points.keep(Curve("other", "things", {"ms": [(10, 9.0)]}, {"load": []}), path)
    assert points.load(path)["c"].figures == {"ms": [(10, 2.0)]}
    assert set(points.load(path)) == {"c", "other"}


def test_the_committed_page_is_made_of_what_was_measured() -> None:
    text, plots = page.render(points.load(), page.TEXTS.read_text())
    assert page.PAGE.read_text() == text
    assert {path.name: path.read_text() for path in page.PLOTS.glob("*.svg")} == plots
