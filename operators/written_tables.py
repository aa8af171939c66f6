"""What the result of an export says about its table: the `extra` of its asset event, with what failed tries of the task
have exported. Pure."""

from collections.abc import Mapping
from typing import Any

from logyard.operators.written_topics import EARLIER

Result = Mapping[str, Any]

_SUMS = ("rows", "dead_letters", "files", "bytes")
_KNOWN = (*_SUMS, "topics", "offsets", "manifest_version")


def exported(result: Result) -> dict[str, Any]:
    """Of ExportSegmentsOperator; empty where nothing was exported."""
    earlier: Result = result.get(EARLIER) or {}
    if not result.get("rows"):
        if not earlier:
            return {}
        result = {**result, "rows": 0}
    told = {key: result.get(key) for key in _KNOWN}
    if not earlier:
        return told
    told |= {key: (told[key] or 0) + (earlier.get(key) or 0) for key in _SUMS}
    told["topics"] = sorted({*(told["topics"] or ()), *(earlier.get("topics") or ())})
    offsets = told["offsets"] = dict(earlier.get("offsets") or {})
    for name, found in (result.get("offsets") or {}).items():
        offsets[name] = _joined(offsets.get(name, found), found)
    if told["manifest_version"] is None:
        told["manifest_version"] = earlier.get("manifest_version")
    return told


def _joined(before: Result, now: Result) -> Result:
    """The range of two tries, where the later one went on behind the earlier one; else its own."""
    if before is now or before["end"] != now["start"]:
        return now
    return {"start": before["start"], "end": now["end"], "rows": before["rows"] + now["rows"]}
