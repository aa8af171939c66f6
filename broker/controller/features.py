"""Finalized features (KIP-584): /feature at a take-over, and UpdateFeatures.

Rule 1: a name in /feature stops every broker of Apache Kafka 3.9 in ZooKeeper mode (facts §22). So a level is only
        finalized where every live broker has registered that it supports it; a Kafka broker has registered nothing.
        A name that somebody else left there can be taken out.
Rule 2: the status is never lowered: below 2.7 Kafka would disable the znode of a cluster that is being upgraded.
Rule 3: UpdateFeatures is checked as in Kafka, update by update; the updates that pass are written in one piece.
"""

from collections.abc import Iterable, Mapping

from logyard.broker.config.features import SUPPORTED
from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Answer, Steps
from logyard.broker.controller.events import FeatureChange, Outcome, UpdateFeatures, UpgradeKind
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.model import BrokerInfo
from logyard.broker.znodes import feature
from logyard.broker.znodes.feature import Features
from logyard.broker.znodes.ops import Create, SetData, ZkOp, Znode


def set_up(context: ControllerContext) -> Steps[None]:
    """The first step of a take-over: enable /feature and keep its names; below 2.7 create it disabled if missing."""
    level = context.settings.level
    found = (yield from effects.read([feature.PATH]))[0]
    if found is None:
        status = feature.ENABLED if level.features else feature.DISABLED
        yield from _write(context, Features(status, version=level.feature_version), None)
        return
    if not level.features:
        return
    try:
        before = feature.decode(found.data)
    except CorruptData as problem:
        yield from effects.note("features cannot be read and are left alone", level="error", reason=str(problem))
        return
    # The names in a disabled znode have no meaning, as in Kafka.
    kept = before.levels if before.status == feature.ENABLED else {}
    after = Features(feature.ENABLED, kept, level.feature_version)
    if after != before:
        yield from _write(context, after, found)


def on_update(context: ControllerContext, request: UpdateFeatures) -> Steps[None]:
    """Answer UpdateFeatures; raises ApiError if this protocol level has no features."""
    if not context.settings.level.features:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.")
    found = (yield from effects.read([feature.PATH]))[0]
    before = Features() if found is None else feature.decode(found.data)
    outcomes: dict[str, Outcome] = {}
    kept = dict(before.levels)
    for number, change in enumerate(request.changes, 1):
        yield from effects.done(number)
        problem = _problem(change, before.levels, context.brokers.values())
        if problem is None and change.level < 1:
            kept.pop(change.name, None)
        elif problem is None:
            kept[change.name] = change.level
        outcomes[change.name] = Outcome() if problem is None else Outcome(ErrorCode.INVALID_REQUEST, problem)
    if kept != before.levels and not request.validate_only:
        after = Features(feature.ENABLED, kept, context.settings.level.feature_version)
        if not (yield from _write(context, after, found)):
            failed = Outcome(ErrorCode.FEATURE_UPDATE_FAILED, f"{feature.PATH} could not be written: try again.")
            outcomes = {name: failed if o.error is ErrorCode.NONE else o for name, o in outcomes.items()}
    yield from effects.perform(Answer(outcomes))


def _problem(change: FeatureChange, existing: Mapping[str, int], brokers: Iterable[BrokerInfo]) -> str | None:
    """Why one update is refused; None where it is allowed."""
    if not change.name:
        return "Feature name can not be empty."
    if change.kind is UpgradeKind.UNKNOWN:
        return "Received unknown upgrade type."
    level, now = change.level, existing.get(change.name)
    if level < 1 and change.kind is not UpgradeKind.UPGRADE:
        return "Can not delete non-existing finalized feature." if now is None else None
    if level < 1:
        return f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType."
    if now == level:
        verb = "upgrade" if change.kind is UpgradeKind.UPGRADE else "downgrade"
        return f"Can not {verb} a finalized feature from existing versionLevel:{now} to the same value."
    if change.kind is UpgradeKind.UPGRADE and now is not None and level < now:
        return (
            f"Can not downgrade finalized feature from existing versionLevel:{now} to provided versionLevel:{level} "
            "because the upgradeType was set to UPGRADE."
        )
    if change.kind is not UpgradeKind.UPGRADE and level > (now or 0):
        return (
            f"Can not upgrade finalized feature from existing versionLevel:{now or 0} to provided versionLevel:{level} "
            "because the upgradeType was set to a downgrade."
        )
    return _unsupported(change, brokers)


def _unsupported(change: FeatureChange, brokers: Iterable[BrokerInfo]) -> str | None:
    own = SUPPORTED.get(change.name)
    if own is None or not own.lowest <= change.level <= own.highest:
        return "Could not apply finalized feature update because the provided feature is not supported."
    without = [b.id for b in brokers if not _supports(b, change)]
    if not without:
        return None
    return (
        f"Could not apply finalized feature update because brokers do not support {change.name} {change.level}: "
        f"{', '.join(map(str, sorted(without)))}."
    )


def _supports(broker: BrokerInfo, change: FeatureChange) -> bool:
    levels = dict(broker.features).get(change.name)
    return levels is not None and levels.lowest <= change.level <= levels.highest


def _write(context: ControllerContext, features: Features, found: Znode | None) -> Steps[bool]:
    data = feature.encode(features)
    op: ZkOp = Create(feature.PATH, data) if found is None else SetData(feature.PATH, data, found.version)
    return (yield from fencing.write_one(context, op)).ok
