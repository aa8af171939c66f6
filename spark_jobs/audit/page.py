"""The audit's page: verdict, findings, and plots of sizes, dirty ratio, skew and findings over time. Pure: data in,
HTML out, with its style and its plots (SVG) inside.

Everything that comes from a log or a file name is escaped.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from logyard.spark_jobs.audit.findings import BAD, WARN, Finding

ROWS_MAX = 500
BARS_MAX = 40
_WIDTH, _LABEL, _ROW = 720, 220, 20

STYLE = """
:root { color-scheme: light dark; --bad: #c62828; --warn: #b26a00; --ok: #2e7d32; --bar: #3f7cac; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 .bad, td.bad { color: var(--bad); } h1 .warn, td.warn { color: var(--warn); } h1 .ok { color: var(--ok); }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th { text-align: left; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top; overflow-wrap: anywhere; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; } svg .bar { fill: var(--bar); }
svg .bad { fill: var(--bad); } svg .warn { fill: var(--warn); } dl { display: flex; flex-wrap: wrap; gap: 0 2rem; }
dt { opacity: .7; font-size: 13px; } dd { margin: 0; font-size: 1.2rem; }
"""


class Bar(NamedTuple):
    """One bar of a plot: its name, its length, and the text after it."""

    label: str
    value: float
    text: str
    kind: str = "bar"


def page(
    summary: Mapping[str, Any],
    findings: Sequence[Finding],
    totals: Sequence[Mapping[str, Any]],
    history: Sequence[Mapping[str, Any]],
) -> str:
    """Return the whole page. `history` has this run as its last line."""
    verdict = str(summary["verdict"])
    at = escape(str(history[-1]["at"])) if history else ""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>Audit: {escape(verdict)}</title><style>{STYLE}</style>",
        f"<h1>Audit of {at}: <span class='{escape(verdict)}'>{escape(verdict)}</span></h1>",
        _figures(summary),
        _findings(findings),
        _plot("Size of each replica", _sizes(totals)),
        _plot("Dirty part of compacted replicas", _dirty(totals)),
        _plot("Bytes by broker", _skew(totals)),
        _over_time(history),
    ]
    return "\n".join(parts) + "\n"


def _figures(summary: Mapping[str, Any]) -> str:
    figures = {
        "topics": ", ".join(summary["topics"]),
        "partitions": f"{summary['partitions']:,}",
        "replicas": f"{summary['replicas']:,}",
        "segments": f"{summary['segments']:,}",
        "records": f"{summary['records']:,}",
        "bytes": f"{summary['bytes']:,}",
        "seconds": str(summary["seconds"]),
    }
    return "<dl>" + "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in figures.items()) + "</dl>"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<h2>Findings</h2><p>None.</p>"
    rows = [
        f"<tr><td class={escape(f.level)}>{escape(f.level)}</td><td>{escape(f.check)}</td>"
        f"<td>{escape(f.topic)}-{f.partition}</td><td>{f.replica}</td>"
        f"<td>{_place(f)}</td><td>{escape(f.message)}</td></tr>"
        for f in sorted(findings, key=lambda f: (f.level != BAD, f.topic, f.partition, f.replica, f.offset))[:ROWS_MAX]
    ]
    left = len(findings) - len(rows)
    more = f"<p>{left:,} more are in findings.parquet.</p>" if left > 0 else ""
    head = "<tr><th>level<th>check<th>partition<th>broker<th>where<th>what</tr>"
    return f"<h2>Findings ({len(findings):,})</h2><table>{head}{''.join(rows)}</table>{more}"


def _place(finding: Finding) -> str:
    words = [escape(finding.file)] if finding.file else []
    words += [f"position {finding.position}"] if finding.position >= 0 else []
    words += [f"offset {finding.offset}"] if finding.offset >= 0 else []
    return ", ".join(words)


def _sizes(totals: Sequence[Mapping[str, Any]]) -> list[Bar]:
    return [Bar(_replica(t), t["bytes"], f"{t['bytes']:,} bytes, {t['segments']} segments") for t in totals]


def _dirty(totals: Sequence[Mapping[str, Any]]) -> list[Bar]:
    compacted = [t for t in totals if t.get("dirty_bytes", -1) >= 0 and t["bytes"]]
    return [Bar(_replica(t), t["dirty_bytes"] / t["bytes"], f"{t['dirty_bytes'] / t['bytes']:.0%}") for t in compacted]


def _skew(totals: Sequence[Mapping[str, Any]]) -> list[Bar]:
    by_broker: dict[int, int] = defaultdict(int)
    for total in totals:
        by_broker[total["replica"]] += total["bytes"]
    mean = sum(by_broker.values()) / max(len(by_broker), 1)
    return [
        Bar(f"broker {b}", size, f"{size:,} bytes, {size / mean if mean else 1:.2f} of the mean")
        for b, size in sorted(by_broker.items())
    ]


def _replica(total: Mapping[str, Any]) -> str:
    return f"{total['topic']}-{total['partition']} on {total['replica']}"


def _plot(title: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars, the longest first."""
    if not bars:
        return ""
    shown = sorted(bars, key=lambda bar: -bar.value)[:BARS_MAX]
    note = f" (the largest {BARS_MAX} of {len(bars):,})" if len(bars) > BARS_MAX else ""
    return f"<h2>{escape(title)}{note}</h2>{_svg(shown)}"


def _svg(bars: Sequence[Bar]) -> str:
    longest = max((bar.value for bar in bars), default=0) or 1
    room = (_WIDTH - _LABEL) * 0.55
    rows = []
    for number, bar in enumerate(bars):
        top, width = number * _ROW, max(bar.value / longest * room, 1)
        label = bar.label if len(bar.label) <= 32 else bar.label[:31] + "…"
        rows.append(
            f"<text x='{_LABEL - 8}' y='{top + 14}' text-anchor=end>{escape(label)}"
            f"<title>{escape(bar.label)}</title></text>"
            f"<rect class={bar.kind} x='{_LABEL}' y='{top + 3}' width='{width:.1f}' height='{_ROW - 6}'/>"
            f"<text x='{_LABEL + width + 6:.1f}' y='{top + 14}'>{escape(bar.text)}</text>"
        )
    height = len(bars) * _ROW
    return f"<svg viewBox='0 0 {_WIDTH} {height}' width='100%' role=img>{''.join(rows)}</svg>"


def _over_time(history: Sequence[Mapping[str, Any]]) -> str:
    bars = list(_runs(history[-BARS_MAX:]))
    return f"<h2>Findings over time</h2>{_svg(bars)}" if bars else ""


def _runs(history: Iterable[Mapping[str, Any]]) -> Iterable[Bar]:
    for run in history:
        bad, warn = int(run[BAD]), int(run[WARN])
        kind = "bad" if bad else "warn" if warn else "bar"
        yield Bar(str(run["at"]), bad + warn, f"{bad} bad, {warn} to look at", kind)
