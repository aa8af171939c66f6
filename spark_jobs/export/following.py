"""The next version, committed although another run committed one meanwhile that does not contradict it.

An export goes on after a version that only put rows together, and such a version after any that left its files alone.
Everybody publishes the newest version before the next one is committed, so at most one is ever unpublished.
"""

import time
from collections.abc import Callable
from typing import Protocol

from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.manifest_store import Fenced, ManifestStore

# How long after its files were begun a run may still go on after another's version. Shorter than the time after which
# such files are deleted (`places/bucket.py`, FOLLOWED): a version must not name what is gone.
FOLLOW_S = 6 * 3600
_ATTEMPTS = 20


class Publishes(Protocol):
    """What is needed of a table's publisher."""

    def publish(self, store: ManifestStore, manifest: Manifest) -> None: ...


def clock() -> float:
    """Return seconds that also count while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def commit_next(
    store: ManifestStore,
    tables: Publishes,
    manifest: Manifest,
    following: Callable[[Manifest], Manifest | None],
    began: float,
    committed: Callable[[Manifest], None],
) -> Manifest:
    """Commit and publish the version that `following` makes of `manifest`, or of the newest one; returns it.

    :param following: returns None if its version contradicts that one.
    :param began: when the run began to write the version's files, by `clock`.
    :param committed: is told the version once it is committed, before it is published: it counts even if that fails.

    Raises Fenced if it contradicts, or if others are faster again and again; TableFailed and what a commit raises.
    """
    made = following(manifest)
    for attempt in range(_ATTEMPTS):
        assert made is not None, "of the version that the files were planned for there is always a next one"
        try:
            store.commit(made)
        except Fenced:
            newest = store.latest()
            made = following(newest) if clock() - began < FOLLOW_S else None
            if made is None or attempt == _ATTEMPTS - 1:
                raise
            tables.publish(store, newest)
            continue
        committed(made)
        tables.publish(store, made)
        return made
    raise AssertionError
