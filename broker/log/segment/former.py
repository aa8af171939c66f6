"""What the file of a new segment tells of the segment before it: so recovery sees what a loss of power has taken.

A segment that was sealed is synced in a thread, while the next one is written and acknowledged. If the power goes
meanwhile, the end of the former may be lost and the latter there. In a compacted log the offsets do not tell: a
follower's segment begins at the first batch that it was sent, and Kafka's cleaner may remove the last records of one.

Rule 1: each log file that is made here has the attribute, from before its first byte on: base offset and size of the
segment before it. A file system that has attributes keeps it where it keeps anything of the segment (disk/port.py).
Rule 2: what a cleaner or Kafka writes is a new file, and has none. So a former segment that has one is what was sealed,
and as long as then; a cut of it has removed the later one. Where one of the two has none, nothing is known.
"""

from logyard.broker.log import layout
from logyard.broker.log.segment.segment import Segment


def told(former: Segment | None) -> bytes:
    """Return what the file of the segment after `former` has to tell; None: it is the first."""
    return b"none" if former is None else b"%d %d" % (former.base_offset, former.size)


def has_lost_its_end(former: Segment, later: Segment) -> bool:
    """Whether the file of `former` is known to be shorter than when `later` was begun. Raises DiskError.

    An empty one that tells nothing was begun right before the power went: there is nothing in it, so it is no loss to
    say yes.
    """
    if _tells(former) is None:
        return False
    tells = _tells(later)
    if tells is None:
        return later.size == 0
    base_offset, _, size = tells.partition(b" ")
    return base_offset == b"%d" % former.base_offset and size.isdigit() and former.size < int(size)


def _tells(segment: Segment) -> bytes | None:
    return segment.disk.open(segment.path(layout.LOG)).attribute(layout.FORMER)
