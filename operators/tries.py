"""What earlier tries of a task on several topics have done, so that the next try works only on what failed.

Airflow keeps state between tries since 3.3; before, a retry works on all topics. (XComs do not outlive a try.) A task
that is cleared works on all of them again, and so does a try for which the job is another: its connection or its
options were edited, and what was done is elsewhere. A topic that was deleted and made anew since is none that was done.

Airflow sends the asset events of a try that ends well, and of no other. So what a failed try has written is kept for
the event of the one that does, also where the task is cleared in between.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from logyard.operators.written_topics import EARLIER

_STORED = "logyard_topics_done"


class Tries:
    """Which topics this try works on, and what earlier tries of the task have done already."""

    def __init__(
        self,
        context: Context,
        given: Sequence[str],
        command: Sequence[str],
        surely_same: Callable[[Mapping[str, str]], Collection[str]],
    ) -> None:
        """:param command: the job's command line for all of the topics, and what it reads from files; it is not kept,
        only compared.
        :param surely_same: says which of these topics (name → id) were not made anew since.
        """
        self._store, self._given = context.get("task_state_store"), list(given)
        known: Any = self._store.get(_STORED) if self._store is not None else None
        self._max_tries = context["ti"].max_tries if self._store is not None else None
        self._command = hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()
        is_ours = isinstance(known, dict) and (known.get("given"), known.get("command")) == (self._given, self._command)
        # What failed tries have written, as the operator's event tells it: of none of it was an event sent.
        self.untold: Mapping[str, Any] = known.get("untold", {}) if is_ours else {}
        # Of another `max_tries`: the task was cleared since, and what was done then may be long ago.
        known = known if is_ours and known.get("max_tries") == self._max_tries else {}
        done: dict[str, Any] = known.get("done", {})
        ids = {topic: row["topic_id"] for topic, row in done.items() if row.get("topic_id")}
        same = surely_same(ids) if ids else ()
        # Where topics have no ids, names have to do.
        self._done = {topic: row for topic, row in done.items() if topic not in ids or topic in same}
        # All of them are done if only what came after them failed.
        self.topics = [topic for topic in given if topic not in self._done] or self._given

    def ended(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the summary of a job that did all of its topics, with those of earlier tries; forget the tries."""
        if self._store is not None and self._store.get(_STORED) is not None:
            self._store.delete(_STORED)
        return self._with_earlier(found) | ({EARLIER: self.untold} if self.untold else {})

    def failed(self, found: dict[str, Any], untold: Mapping[str, Any]) -> dict[str, Any]:
        """Return the summary likewise, and keep for the next try which topics need no other.

        :param untold: what this try and earlier ones have written.
        """
        rows, failed = found.get("by_topic") or {}, found.get("topics_failed") or {}
        done = {topic: row for topic, row in rows.items() if topic not in failed and row.get("verdict") != "bad"}
        if self._store is not None and (done or untold):
            stored: Any = {"given": self._given, "done": {**self._done, **done}, "max_tries": self._max_tries}
            stored |= {"command": self._command, "untold": untold}
            self._store.set(_STORED, stored)
        return self._with_earlier(found)

    def _with_earlier(self, found: dict[str, Any]) -> dict[str, Any]:
        if not self._done:
            return found
        rows = {**self._done, **(found.get("by_topic") or {})}
        return found | {"by_topic": rows, "topics_of_earlier_tries": sorted(self._done)}
