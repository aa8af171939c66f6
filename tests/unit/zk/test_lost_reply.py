"""What the znodes say about a multi whose answer was lost."""

import pytest

from logyard.broker.zk.lost_reply import outcome, paths_to_read
from logyard.broker.znodes.ops import Check, Create, Delete, OpResult, SetData, ZkCode, ZkOp, Znode

ME, OTHER = 11, 12


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        ([Create("/a", b"x")], {"/a": Znode(b"x", 0, 5)}),
        ([Create("/a", b"x", ephemeral=True)], {"/a": Znode(b"x", 0, 5, 0, ME)}),
        ([Create("/a"), SetData("/a", b"x", 0)], {"/a": Znode(b"x", 1, 5)}),
        ([SetData("/a", b"x", 3)], {"/a": Znode(b"x", 4, 5)}),
        ([Check("/e", 1), Delete("/a", 2)], {"/a": None}),
        ([SetData("/a", b"x", 3), Create("/n", b"a", sequential=True)], {"/a": Znode(b"x", 4, 5)}),
    ],
)
def test_it_happened(ops: list[ZkOp], found: dict[str, Znode | None]) -> None:
    results = outcome(ops, found, ME)
    assert results is not None
    assert all(result.ok for result in results)
    assert set(paths_to_read(ops)) == set(found)


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        ([Create("/a", b"x")], {"/a": Znode(b"y", 0, 5)}),
        ([Create("/a", b"x")], {"/a": Znode(b"x", 1, 5)}),
        ([Create("/a", b"x")], {"/a": Znode(b"x", 0, 5, 0, ME)}),
        ([Create("/a", b"x", ephemeral=True)], {"/a": Znode(b"x", 0, 5, 0, OTHER)}),
        ([Create("/a", b"x", sequential=True)], {"/a": Znode(b"x", 0, 5)}),
        ([SetData("/a", b"x", 3)], {"/a": Znode(b"x", 5, 5)}),
        ([SetData("/a", b"x", 3)], {"/a": None}),
        ([Delete("/a")], {"/a": Znode(b"", 0, 5)}),
        ([Delete("/a"), SetData("/b", b"x", 0)], {"/a": None, "/b": Znode(b"y", 1, 5)}),
        ([SetData("/a", b"x", 3), Create("/n", b"a", sequential=True)], {"/a": Znode(b"x", 5, 5)}),
        ([Check("/a", 0), Create("/n", b"a", sequential=True)], {}),
        ([Check("/a", 0)], {}),
    ],
)
def test_it_cannot_have_happened(ops: list[ZkOp], found: dict[str, Znode | None]) -> None:
    assert outcome(ops, found, ME) is None


def test_the_answers_are_those_that_were_lost() -> None:
    ops: list[ZkOp] = [Check("/e", 1), SetData("/a", b"x", 3), Delete("/b")]
    assert outcome(ops, {"/a": Znode(b"x", 4, 9), "/b": None}, ME) == [
        OpResult(ZkCode.OK, "/e"),
        OpResult(ZkCode.OK, "/a", 4, 9),
        OpResult(ZkCode.OK, "/b"),
    ]
