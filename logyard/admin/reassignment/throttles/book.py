"""Throttling moves together with others: take a throttle, give it back, and end what dead owners left.

Every step first writes down what it is about to do (`records.py`), so that whoever comes after a crash, at
any point, can finish it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from logyard.admin.ports import AccessRefused, ClusterUnreachable, Pause
from logyard.admin.reassignment.execution import Move
from logyard.admin.reassignment.throttles.records import (
    BROKER,
    ENDING,
    HELD,
    OVER,
    TOPIC,
    Claim,
    Place,
    Record,
    Records,
    base,
    is_known,
    no_longer_needed,
    standing,
)
from logyard.admin.reassignment.throttles.settings import (
    FOLLOWER_RATE,
    LEADER_RATE,
    ConfigClient,
    await_rates,
    own_values,
    throttled_brokers,
    throttled_replicas,
)
from logyard.broker.errors import ApiError, ErrorCode

_ROUNDS = 20  # of looking whether somebody else came or went meanwhile
# What is said where a topic has vanished, or a broker is not there (any more).
_GONE = {
    TOPIC: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
    BROKER: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE),
}


class ThrottleBook:
    """The throttles of one cluster, shared by all who keep `records` of them.

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

    def held(self) -> set[Place]:
        """The settings that some owner holds now."""
        return {place for record in self._records.load() if record.state == HELD for place in record.claims}

    def lacks(self, owner: str, moves: Sequence[Move], rate: int) -> bool:
        """Whether `hold` would have anything to do for this owner."""
        mine = self.owners().get(owner)
        held = mine.claims if mine is not None and mine.state == HELD else {}
        wanted = {place: value for place, value in claims(moves, rate).items() if self._reaches(place)}
        return any(p not in held or not held[p].looked for p in wanted)

    def hold(self, owner: str, moves: Sequence[Move], rate: int) -> list[Place]:
        """Throttle `moves` to `rate` bytes per second on each broker; returns the settings that others keep.

        May be called again, by the same owner, as often as it likes: for what it holds already nothing changes,
        except for brokers that could not be asked before. Brokers that are away are left out.
        """
        wanted = {place: value for place, value in claims(moves, rate).items() if self._reaches(place)}
        mine = self._announce(owner, wanted)
        found = self._read(wanted)
        others = [record for record in self._records.load() if record.owner != owner]
        theirs = [place for place, value in found.items() if _is_others_last_word(place, value, mine, others)]
        taken = {place: value for place, value in found.items() if place not in theirs}
        mine = replace(mine, claims={**mine.claims, **{p: mine.claims[p].found(v) for p, v in taken.items()}})
        self._bring(mine, taken, [*others, mine])
        self._settle(owner, list(taken), mine)
        rates = {int(place.name) for place in taken if place.kind == BROKER}
        await_rates(self._client, sorted(rates), rate, self._pause)
        return theirs

    def release(self, owner: str) -> list[Place]:
        """End an owner's throttle: what it set goes back to what others want, or set. Returns what is left to do.

        Something is left where a broker is away; the record stays, and whoever calls `sweep` later finishes it.
        """
        mine = self.owners().get(owner)
        if mine is None:
            return []
        self._records.put(replace(mine, state=ENDING))
        left = self._settle(owner, list(mine.claims))
        settled = self.owners().get(owner)
        if settled is not None and not left:
            self._records.put(replace(settled, state=OVER))
            self._forget()
        return left

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

    def _announce(self, owner: str, wanted: Mapping[Place, str]) -> Record:
        """Claim before looking: whoever ends a throttle of its own from now on leaves these settings to us."""
        records = self.owners()
        mine = records.get(owner)
        if mine is None or mine.state != HELD:
            turn = 1 + max((record.turn for record in records.values()), default=0)
            # What a former throttle of this owner's saw is still what has to come back.
            before = mine.claims if mine is not None else {}
            mine = Record(owner, turn, HELD, {p: replace(claim, looked=False) for p, claim in before.items()})
        claimed = dict(mine.claims)
        for place, value in wanted.items():
            claimed[place] = replace(claimed.get(place, Claim(value)), wanted=value)
        mine = replace(mine, claims=claimed)
        self._records.put(mine)
        return mine

    def _settle(self, owner: str, places: Sequence[Place], held: Record | None = None) -> list[Place]:
        """Bring settings to what all records want, until nobody else came or went meanwhile; returns what is away.

        :param held: the owner's record, where it holds on even if somebody has ended it meanwhile.
        """
        left: list[Place] = []
        for _ in range(_ROUNDS):
            records = self._records.load()
            mine = next((record for record in records if record.owner == owner), None)
            if mine is None:
                if held is None:
                    return []  # whoever dropped it has settled it
                mine = held
                records.append(held)
            found = self._read(places)
            left = [place for place in places if place not in found]
            ours = {place: value for place, value in found.items() if is_known(place, value, records)}
            self._bring(mine, ours, records)
            if _others(self._records.load(), owner) == _others(records, owner):
                break
        return left

    def _bring(self, mine: Record, found: Mapping[Place, str | None], records: Sequence[Record]) -> None:
        """Set what is not as the records want it, written down before."""
        wanted = {place: standing(place, records) for place in found}
        of_runs = {p: mine.claims[p].wrote(v) for p, v in wanted.items() if v is not None and v != base(p, records)}
        self._records.put(replace(mine, claims={**mine.claims, **of_runs}))
        changed = {place: value for place, value in wanted.items() if value != found[place]}
        for (kind, name), places in _by_resource(changed).items():
            self._write(kind, name, {place.key: changed[place] for place in places})

    def _forget(self) -> None:
        for record in no_longer_needed(self._records.load()):
            self._records.drop(record.owner)

    # -- the cluster's settings --------------------------------------------------------------------------

    def _reaches(self, place: Place) -> bool:
        return place.kind == TOPIC or self._live is None or place.name in self._live

    def _read(self, places: Iterable[Place]) -> dict[Place, str | None]:
        """Values, None where nothing is set (or the topic is gone); places on brokers that are away are left out."""
        found: dict[Place, str | None] = {}
        for (kind, name), wanted in _by_resource(filter(self._reaches, places)).items():
            keys = [place.key for place in wanted]
            try:
                configs = self._client.topic_configs(name) if kind == TOPIC else self._client.broker_configs(int(name))
                values = own_values(configs, keys)
            except (ApiError, ClusterUnreachable) as problem:
                # Who refuses us is there, and would work on without a throttle.
                gone = getattr(problem, "code", None) in _GONE[kind]
                away = kind == BROKER and isinstance(problem, ClusterUnreachable)
                if isinstance(problem, AccessRefused) or not (gone or away):
                    raise
                if kind == BROKER:
                    continue  # it went away since
                values = dict.fromkeys(keys)
            found.update({place: values[place.key] for place in wanted})
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


def claims(moves: Sequence[Move], rate: int) -> dict[Place, str]:
    """What a throttle of these moves sets, the topics' lists first: a broker that knows its rate knows them then."""
    found = {
        Place(TOPIC, topic, key): ",".join(listed)
        for topic, keys in throttled_replicas(moves).items()
        for key, listed in keys.items()
    }
    for broker in throttled_brokers(moves):
        found |= {Place(BROKER, str(broker), key): str(rate) for key in (LEADER_RATE, FOLLOWER_RATE)}
    return found


def _is_others_last_word(place: Place, value: str | None, mine: Record, others: Sequence[Record]) -> bool:
    """Whether a setting that we had taken was changed by somebody who keeps no records."""
    claim = mine.claims[place]
    return claim.looked and value != claim.saw and not is_known(place, value, [*others, mine])


def _by_resource(places: Iterable[Place]) -> dict[tuple[str, str], list[Place]]:
    found: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        found.setdefault((place.kind, place.name), []).append(place)
    return found


def _others(records: Sequence[Record], owner: str) -> dict[str, Record]:
    return {record.owner: record for record in records if record.owner != owner}
