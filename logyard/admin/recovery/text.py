"""The findings of a recovery, as one line."""

from collections.abc import Iterable

from logyard.admin.recovery.diagnosis import Evidence, Finding, Health
from logyard.admin.recovery.witnesses import Wire


def describe(finding: Finding, evidence: Evidence, state: Health, withheld: Iterable[str], no_launcher: str) -> str:
    """The finding, the missing brokers, unhealthy partitions, and withheld steps.

    `no_launcher`: why nothing can be started; empty if it can.
    """
    parts = [finding.value if finding is not Finding.HEALTHY else f"controller {evidence.view.holder} answers"]
    if finding is Finding.CONTROLLER_DISPUTED:
        parts.append(f"brokers {evidence.disputing} do not accept {evidence.view.holder} as controller")
    if evidence.missing:
        parts.append(f"brokers {evidence.missing} are missing")
        if no_launcher:
            parts.append(f"starting them needs a launcher: {no_launcher}")
    if evidence.silent:
        parts.append(f"brokers {evidence.silent} are registered and silent")
    parts += [
        f"broker {probe.broker}: {probe.detail}"
        for probe in evidence.probes.values()
        if probe.wire is Wire.REFUSES and probe.detail
    ]
    if not state.is_full:
        led = f"{state.led} of {state.partitions} partitions led"
        parts.append(f"{led}, {len(state.under_replicated)} under-replicated")
    if state.stuck_deletions or state.stuck_moves:
        stuck = [*state.stuck_deletions, *map(str, state.stuck_moves)]
        parts.append(f"stuck: {', '.join(stuck[:5])}")
    return "; ".join([", ".join(parts), *withheld])
