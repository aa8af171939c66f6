"""Shared throttles: owners set them, end them, and end those of owners that died.

Every step is recorded before it is taken (`records.py`), so that after a crash at any point another run can finish.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from logyard.admin.ports import AccessRefused, ClusterUnreachable, Pause
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles.records import (
    BROKER,
    ENDING,
    HELD,
    OVER,
    TOPIC,
    Claim,
    Record,
    Records,
    ThrottleSetting,
    base,
    is_known,
    next_turn,
    no_longer_needed,
    standing,
    written_by,
)
from logyard.admin.reassignment.throttles.settings import ConfigClient, await_rates, own_values, throttle_settings
from logyard.broker.errors import ApiError, ErrorCode

_ROUNDS = 20  # attempts, if another owner came or went meanwhile
# The errors for a deleted topic, and for a broker that is not registered.
_GONE = {
    TOPIC: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
    BROKER: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE),
}


class ThrottleBook:
    """The throttles of one cluster, shared by all owners that use these `records`.

    :param live: the brokers that can be asked for their settings; None: all of them (ZooKeeper has the settings).
    """

    def __init__(
        self, client: ConfigClient, records: Records, pause: Pause, live: Collection[int] | None = None
    ) -> None:
        self._client = client
        self._records = records
        self._pause = pause
        self._live = None if live is None else {str(broker) for broker in live}

    def owners(self) -> dict[str, Record]:
        return {record.owner: record for record in self._records.load()}

    def held(self) -> set[ThrottleSetting]:
        """The settings that some owner holds now."""
        return {setting for record in self._records.load() if record.state == HELD for setting in record.claims}

    def lacks(self, owner: str, moves: Sequence[Move], rate: int) -> bool:
        """Whether `hold` would have anything to do for this owner."""
        mine = self.owners().get(owner)
        held = mine.claims if mine is not None and mine.state == HELD else {}
        wanted = filter(self._reaches, throttle_settings(moves, rate))
        return any(setting not in held or not held[setting].looked for setting in wanted)

    def hold(self, owner: str, moves: Sequence[Move], rate: int) -> list[ThrottleSetting]:
        """Throttle `moves` to `rate` bytes per second on each broker; see `hold_settings`."""
        return self.hold_settings(owner, throttle_settings(moves, rate))

    def hold_settings(self, owner: str, settings: Mapping[ThrottleSetting, str]) -> list[ThrottleSetting]:
        """Set these for this owner, in addition to what it holds; returns those that others changed, which stay.

        Can be repeated: settings that the owner holds do not change, except on brokers that could not be asked before.
        Brokers that are down are left out. Raises ApiError, AccessRefused.
        """
        wanted = {setting: value for setting, value in settings.items() if self._reaches(setting)}
        mine: Record | None = None
        for _ in range(_ROUNDS):
            mine, theirs, taken = self._try_to_hold(owner, wanted, mine)
            if self._is_held(owner):
                break  # else an end of this owner's throttle has overwritten it
        await_rates(self._client, {setting: wanted[setting] for setting in taken}, self._pause)
        return theirs

    def _try_to_hold(
        self, owner: str, wanted: Mapping[ThrottleSetting, str], known: Record | None
    ) -> tuple[Record, list[ThrottleSetting], list[ThrottleSetting]]:
        """Return the owner's record, the settings that others changed, and those that are set now.

        :param known: the record of the last try.
        """
        mine = self._announce(owner, wanted, known)
        found = self._read(wanted)
        others = [record for record in self._records.load() if record.owner != owner]
        theirs = [setting for setting, value in found.items() if _is_others_last_word(setting, value, mine, others)]
        taken = {setting: value for setting, value in found.items() if setting not in theirs}
        now = next_turn([*others, mine])
        read = {s: mine.claims[s].found(v, now, written_by(s, others)) for s, v in taken.items()}
        mine = self._bring(replace(mine, claims={**mine.claims, **read}), taken, [*others, mine])
        self._settle(owner, list(taken), mine)
        return mine, theirs, list(taken)

    def _is_held(self, owner: str) -> bool:
        mine = self.owners().get(owner)
        return mine is not None and mine.state == HELD

    def hand_over(self, owner: str) -> None:
        """Drop the owner's record and keep the settings, which from now on count as set by somebody else."""
        self._records.drop(owner)
        self._forget()

    def remove(self, settings: Iterable[ThrottleSetting]) -> list[ThrottleSetting]:
        """Remove these settings, whoever set them, except those that an owner holds; returns the removed ones.

        Those of a broker that turns out to be down are not removed, and do not keep the others.
        """
        held = self.held()
        removed: list[ThrottleSetting] = []
        for (kind, name), of_one in _by_resource(setting for setting in settings if setting not in held).items():
            try:
                self._write(kind, name, dict.fromkeys(setting.key for setting in of_one))
            except (ApiError, ClusterUnreachable) as problem:
                if kind != BROKER or not _is_away(kind, problem):
                    raise
            else:
                removed += of_one
        return removed

    def release(self, owner: str) -> list[ThrottleSetting]:
        """End an owner's throttle: settings return to what others want or set. Returns those that could not be changed.

        These are on brokers that are down; the record stays, and a later `sweep` finishes it.
        """
        for _ in range(_ROUNDS):
            mine = self.owners().get(owner)
            if mine is None:
                return []
            self._records.put(replace(mine, state=ENDING))
            left = self._settle(owner, list(mine.claims))
            settled = self.owners().get(owner)
            if left or settled is None or settled.state == HELD:
                return left
            self._records.put(replace(settled, state=OVER))
            self._forget()
            if not self._is_set_again(settled):
                return []
            self._records.put(settled)
        return []

    def _is_set_again(self, ended: Record) -> bool:
        """Whether the same owner has set something again that no record accounts for now.

        Nothing in the records can be compared and changed in one step: a `hold` of this owner may have written its
        record just before that was overwritten.
        """
        records = [record for record in self._records.load() if record.owner != ended.owner]
        if self._is_held(ended.owner):
            return False
        records.append(replace(ended, state=OVER))
        found = self._read(ended.claims)
        return any(
            value in ended.claims[setting].written and value != standing(setting, records)
            for setting, value in found.items()
        )

    def sweep(self, lives: Callable[[str], bool], moving: Collection[tuple[str, int]]) -> list[str]:
        """End the throttles of owners that are no longer alive and for whose partitions nothing moves.

        :param lives: whether an owner still works, or will again.
        :param moving: the partitions (topic, number) that are being moved now.
        """
        ended = []
        for owner, record in sorted(self.owners().items()):
            abandoned = record.state == HELD and not lives(owner) and not record.partitions() & set(moving)
            if record.state == ENDING or abandoned:
                self.release(owner)
                ended.append(owner)
        self._forget()
        return ended

    # -- steps -------------------------------------------------------------------------------------------

    def _announce(self, owner: str, wanted: Mapping[ThrottleSetting, str], known: Record | None) -> Record:
        """Claim the settings before reading them: another owner that ends from now on leaves them to this one.

        :param known: what this owner's record was, if it was dropped meanwhile.
        """
        records = self.owners()
        mine = records.get(owner)
        if mine is None and known is not None:
            mine = replace(known, state=OVER)
        if mine is None or mine.state != HELD:
            turn = next_turn(records.values())
            # The value that an earlier throttle of this owner saw is still the one to restore.
            before = mine.claims if mine is not None else {}
            mine = Record(owner, turn, HELD, {s: replace(claim, looked=False) for s, claim in before.items()})
        claimed = dict(mine.claims)
        for setting, value in wanted.items():
            claimed[setting] = replace(claimed.get(setting, Claim(value, since=mine.turn)), wanted=value)
        mine = replace(mine, claims=claimed)
        self._records.put(mine)
        return mine

    def _settle(
        self, owner: str, settings: Sequence[ThrottleSetting], held: Record | None = None
    ) -> list[ThrottleSetting]:
        """Set what all records together want, until no other owner comes or goes; returns unreachable settings.

        :param held: the owner's record, if it keeps its throttle even if somebody has ended it meanwhile.
        """
        left: list[ThrottleSetting] = []
        for _ in range(_ROUNDS):
            records = self._records.load()
            mine = next((record for record in records if record.owner == owner), None)
            if mine is None:
                if held is None:
                    return []  # whoever dropped it has restored the settings
                mine = held
                records.append(held)
            found = self._read(settings)
            left = [setting for setting in settings if setting not in found]
            ours = {setting: value for setting, value in found.items() if is_known(setting, value, records)}
            self._bring(mine, ours, records)
            if _others(self._records.load(), owner) == _others(records, owner):
                break
        return left

    def _bring(self, mine: Record, found: Mapping[ThrottleSetting, str | None], records: Sequence[Record]) -> Record:
        """Change settings that differ from what the records want; record each value first. Returns the record."""
        wanted = {setting: standing(setting, records) for setting in found}
        of_runs = {s: mine.claims[s].wrote(v) for s, v in wanted.items() if v is not None and v != base(s, records)}
        mine = replace(mine, claims={**mine.claims, **of_runs})
        self._records.put(mine)
        changed = {setting: value for setting, value in wanted.items() if value != found[setting]}
        for (kind, name), settings in _by_resource(changed).items():
            self._write(kind, name, {setting.key: changed[setting] for setting in settings})
        return mine

    def _forget(self) -> None:
        for record in no_longer_needed(self._records.load()):
            self._records.drop(record.owner)

    # -- the cluster's settings --------------------------------------------------------------------------

    def _reaches(self, setting: ThrottleSetting) -> bool:
        return setting.kind == TOPIC or self._live is None or setting.name in self._live

    def _read(self, settings: Iterable[ThrottleSetting]) -> dict[ThrottleSetting, str | None]:
        """Values, None if nothing is set (or the topic is gone); settings on brokers that are down are left out."""
        found: dict[ThrottleSetting, str | None] = {}
        for (kind, name), wanted in _by_resource(filter(self._reaches, settings)).items():
            keys = [setting.key for setting in wanted]
            try:
                configs = self._client.topic_configs(name) if kind == TOPIC else self._client.broker_configs(int(name))
                values = own_values(configs, keys)
            except (ApiError, ClusterUnreachable) as problem:
                if not _is_away(kind, problem):
                    raise
                if kind == BROKER:
                    continue  # it went down meanwhile
                values = dict.fromkeys(keys)
            found.update({setting: values[setting.key] for setting in wanted})
        return found

    def _write(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        put = {key: value for key, value in values.items() if value is not None}
        delete = [key for key, value in values.items() if value is None]
        if kind == BROKER:
            self._client.alter_broker_configs(int(name), put, delete)
            return
        try:
            self._client.alter_topic_configs(name, put, delete)
        except ApiError as refusal:
            if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def _is_away(kind: str, problem: Exception) -> bool:
    """Whether a topic is gone, or a broker down. One that refuses access is up, and would continue unthrottled."""
    gone = getattr(problem, "code", None) in _GONE[kind]
    silent = kind == BROKER and isinstance(problem, ClusterUnreachable)
    return (gone or silent) and not isinstance(problem, AccessRefused)


def _is_others_last_word(setting: ThrottleSetting, value: str | None, mine: Record, others: Sequence[Record]) -> bool:
    """Whether a setting that the owner had set was changed by somebody who keeps no records."""
    claim = mine.claims[setting]
    return claim.looked and value != claim.saw and not is_known(setting, value, [*others, mine])


def _by_resource(settings: Iterable[ThrottleSetting]) -> dict[tuple[str, str], list[ThrottleSetting]]:
    found: dict[tuple[str, str], list[ThrottleSetting]] = {}
    for setting in settings:
        found.setdefault((setting.kind, setting.name), []).append(setting)
    return found


def _others(records: Sequence[Record], owner: str) -> dict[str, Record]:
    return {record.owner: record for record in records if record.owner != owner}
