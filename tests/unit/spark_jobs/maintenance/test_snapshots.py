"""Which snapshots of a table expire."""

from logyard.spark_jobs.tables.snapshots import Ref, Snapshot, expired

HOUR = 3_600_000
NOW = 1_000 * HOUR


def line(*hours_ago: int) -> list[Snapshot]:
    """Snapshots 1, 2, … of one branch, made so many hours ago."""
    return [Snapshot(n, n - 1 or None, NOW - ago * HOUR) for n, ago in enumerate(hours_ago, 1)]


def test_age_counts_from_when_a_snapshot_was_replaced() -> None:
    states = line(100, 50, 1)
    main = [Ref(3, is_branch=True)]
    assert expired(states, main, NOW, 48 * HOUR, 1) == (1,)
    assert expired(states, main, NOW, 51 * HOUR, 1) == ()
    assert expired(states, main, NOW, 0, 1) == (1, 2)


def test_the_present_state_and_the_newest_few_stay() -> None:
    states = line(100, 90, 80, 70)
    assert expired(states, [Ref(4, is_branch=True)], NOW, 0, 3) == (1,)
    assert expired(states, [Ref(4, is_branch=True)], NOW, 0, 9) == ()
    assert expired(states[:1], [Ref(1, is_branch=True)], NOW, 0, 1) == ()


def test_tags_and_other_branches_keep_what_they_name() -> None:
    states = [*line(100, 90, 80, 70), Snapshot(9, 2, NOW - 60 * HOUR)]
    refs = [Ref(4, is_branch=True), Ref(1, is_branch=False), Ref(9, is_branch=True)]
    assert expired(states, refs, NOW, 0, 1) == (2, 3)
    keeping = [Ref(4, is_branch=True), Ref(9, is_branch=True, keep=3)]
    assert expired(states, keeping, NOW, 0, 1) == (3,)
    aged = [Ref(4, is_branch=True), Ref(9, is_branch=True, age_ms=1_000 * HOUR)]
    assert expired(states, aged, NOW, 0, 1) == (3,)


def test_what_no_branch_has_goes_by_its_own_age() -> None:
    states = [*line(100, 90), Snapshot(7, 1, NOW - 80 * HOUR), Snapshot(8, 1, NOW - 2 * HOUR)]
    assert expired(states, [Ref(2, is_branch=True)], NOW, 24 * HOUR, 2) == (7,)


def test_a_table_without_branches_and_a_ring_of_parents_end() -> None:
    assert expired([], [], NOW, 0, 1) == ()
    ring = [Snapshot(1, 2, 0), Snapshot(2, 1, 0)]
    assert expired(ring, [Ref(2, is_branch=True)], NOW, 0, 1) == (1,)
