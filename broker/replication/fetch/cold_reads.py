"""The slices of one fetch that are not in memory: threads read them, and the fetch is answered after the last one.

What is to be sent from files is only brought into memory by the threads (`warm`). All records of the answer are found
again at the end: meanwhile the log may have been cut, and what was in memory may have been dropped. What has been
dropped then is read into this process (`load`), so that a machine without free memory answers, too.
"""

from collections.abc import Callable
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.replication.events import FetchedPartition
from logyard.broker.replication.fetch import filling
from logyard.broker.replication.fetch.filling import Found
from logyard.broker.replication.hosted import Hosted


class ColdReads:
    """Reads for one answer, whose `results` are those of all its partitions, and `slices` of those with records."""

    __slots__ = ("_hosted", "_left", "_logs", "_pending", "_results", "_slices")

    def __init__(
        self, hosted: Hosted, results: list[FetchedPartition], slices: list[Found], pending: Pending[Any]
    ) -> None:
        self._hosted = hosted
        self._results = results
        self._slices = slices
        self._logs = [partition.log for _, _, partition, _ in slices]
        self._pending = pending
        self._left = 0

    def warm(self, cold: list[Found]) -> None:
        """Have threads bring these slices into memory, then answer from files."""
        self._left = len(cold)
        for each in cold:
            self._in_thread(each, each[1].warm, lambda each, nothing: None, self._find_again)

    def _find_again(self) -> None:
        left = [each for each in self._slices if each[0].error is ErrorCode.NONE]
        if filling.fill(left, in_files=True):
            # Nothing of an answer that waits again is left in files.
            self.load(filling.fill(left, in_files=False))
        else:
            self._answer()

    def load(self, cold: list[Found]) -> None:
        """Have threads read these slices, then answer; the others are in memory."""
        self._left = len(cold)
        if not cold:
            self._answer()
        for each in cold:
            self._in_thread(each, each[1].load, _fill_in, self._answer)

    def _in_thread(
        self, each: Found, work: Callable[[], Any], take: Callable[[Found, Any], None], then: Callable[[], None]
    ) -> None:
        """Do one slice's work, and take what it gives; do what comes then, behind the last slice."""
        size = each[1].size
        # What a thread only brings into memory may be read after all, and counts too.
        self._hosted.loading(size)

        def done(read: Pending[Any]) -> None:
            self._hosted.loading(-size)
            try:
                take(each, read.result())
            except Exception as error:
                # Whatever the error, the fetch must not wait for ever.
                filling.fail(each[0], error)
            self._left -= 1
            if self._left == 0:
                then()

        self._hosted.run_blocking(work).add_done_callback(done)

    def _answer(self) -> None:
        """Answer, without the records of a log that is led by another, or in another epoch: others may be there."""
        for (result, _, partition, epoch), log in zip(self._slices, self._logs, strict=True):
            if partition.log is not log or partition.leader_epoch != epoch:
                result.records = b""
                result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._pending.done():
            self._pending.set_result(self._results)


def _fill_in(each: Found, records: memoryview) -> None:
    each[0].records = records
    filling.name_aborted(each[0], each[1])
