"""Features of a cluster (KIP-584) as kafka-features shows and changes them: values and lines. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from logyard.broker.errors import ApiError, LogyardError

LEVEL_MAX = 2**15 - 1


class BadFeatures(LogyardError):
    """The words about features cannot be understood; the text says why."""


class Kind(Enum):
    """What may become of a level; the value is the request's."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature that the brokers support; `finalized` is 0 where no level is finalized."""

    name: str
    lowest: int
    highest: int
    finalized: int


@dataclass(frozen=True, slots=True)
class Features:
    """What a broker tells of features; `epoch` grows with each change, None where it has none to tell."""

    supported: tuple[Feature, ...]
    epoch: int | None


def parse(words: Iterable[str]) -> dict[str, int]:
    """Read `name=level` words. Raises BadFeatures."""
    levels: dict[str, int] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name:
            raise BadFeatures(f"--feature {word}: give name=level, as transaction.version=2")
        if not text.isdecimal() or len(text) > 9 or int(text) > LEVEL_MAX:
            raise BadFeatures(f"--feature {word}: a level is a number from 0 to {LEVEL_MAX}")
        if name in levels:
            raise BadFeatures(f"--feature {name} is given more than once")
        levels[name] = int(text)
    if not levels:
        raise BadFeatures("give --feature name=level, as transaction.version=2")
    return levels


def description(features: Features) -> list[str]:
    """One line for each supported feature, as kafka-features prints it."""
    epoch = "-" if features.epoch is None else features.epoch
    return [
        f"Feature: {one.name}\tSupportedMinVersion: {one.lowest}\tSupportedMaxVersion: {one.highest}\t"
        f"FinalizedVersionLevel: {one.finalized}\tEpoch: {epoch}"
        for one in sorted(features.supported, key=lambda one: one.name)
    ]


def outcome(
    verb: str, levels: Mapping[str, int], problems: Mapping[str, ApiError | None], *, dry_run: bool
) -> list[str]:
    """One line for each feature, as kafka-features prints it; `verb` is `upgrade` or `downgrade`."""
    lines = []
    for name, problem in sorted(problems.items()):
        if problem is None:
            lines.append(f"{name} {'can be' if dry_run else 'was'} {verb}d to {levels[name]}.")
        else:
            cannot = "Can not" if dry_run else "Could not"
            lines.append(f"{cannot} {verb} {name} to {levels[name]}. {problem.message or problem}")
    return lines
