"""The controller's shell: one queue and one task, which performs the procedures' effects and sends them the results.

Rule 1: one event's generator runs to its end before the next event is taken; only resignation and the loss of the
session close it early.
Rule 2: an event that fails is logged and affects no other event; an unexpected failure during a take-over gives
/controller up, so that another broker is elected. Where ZooKeeper has refused something, the event comes again: its
watch may not be set, and nothing else would tell what has changed.
Rule 3: when the session is lost the queue is emptied, every waiting request is answered NOT_CONTROLLER, and nothing
more is written or sent until there is a new session.
Rule 4: every event has an id, which its log lines, requests and later events carry.
"""

import asyncio
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeVar

import structlog

from logyard.broker import tasks
from logyard.broker.clock import Clock
from logyard.broker.controller import dispatch, effects, events, garbage_collector, gauges
from logyard.broker.controller.broker_requests import encoding
from logyard.broker.controller.broker_requests.batch import BrokerRequest
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Effect, Steps
from logyard.broker.controller.events import Event
from logyard.broker.controller.failover import controller_election, lifecycle
from logyard.broker.controller.fencing import ControllerMoved
from logyard.broker.controller.ports import Chance, Peers
from logyard.broker.controller.queue import Envelope, EventQueue, not_controller
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.controller.watches import WatchBook
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.portions import portions
from logyard.broker.znodes.ops import SessionExpired, Znode, ZooKeeper
from logyard.broker.znodes.reading import read_each

_PAUSE_AFTER_FAILED_TAKE_OVER_S = 1.0
AFTER_REFUSAL_S = 1.0
_BIG_REQUEST = 1000  # partitions; such a request is encoded in turns of the event loop


A = TypeVar("A")

Observer = Callable[[Envelope, Effect | None], None]
"""Called for every event (None) and for every effect it causes; for transcripts, stories and tests."""


class ControllerRunner:
    """One broker's controller, standing by or active."""

    def __init__(
        self,
        zk: ZooKeeper,
        peers: Peers,
        clock: Clock,
        settings: ControllerSettings,
        *,
        chance: Chance,
        inter_broker_listener: str | None = None,
        observer: Observer | None = None,
        epoch_seen: Callable[[], int] = lambda: 0,
    ) -> None:
        self._epoch_seen = epoch_seen
        self._zk = zk
        self._peers = peers
        self._clock = clock
        self._chance = chance
        self._observer = observer
        self.context = ControllerContext(settings)
        self._gauges = gauges.Gauges(self.context)
        self._encoder = encoding.Encoder(settings.level, inter_broker_listener)
        self._wake = asyncio.Event()
        self.queue = EventQueue(self._wake.set, lambda delay, due: asyncio.get_running_loop().call_later(delay, due))
        self.data_watches = WatchBook(self.queue.put)
        self._child_watches = WatchBook(self.queue.put)
        self._task: asyncio.Task[None] | None = None
        self._session_is_lost = False
        self._stand_not_before = 0.0
        self._again: list[Event] = []  # answers among them cannot be hashed
        self._log = structlog.get_logger("logyard.controller").bind(broker=settings.broker_id)

    # What the broker asks and tells

    async def start(self) -> None:
        """Stand for election; the broker must be registered."""
        self._task = tasks.keep("controller", self._run, pause_s=0.0)
        self.queue.put(events.Started())

    async def stop(self) -> None:
        """Stop at once; /controller disappears with the session."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self.queue.drop_everything()
        for broker in self.context.reachable_ids():
            self._peers.remove_broker(broker)
        self.context.reset()
        self._gauges.forget()

    def on_session_lost(self) -> None:
        """The session is lost: stop the current event before anything is done in a new session."""
        self._session_is_lost = True
        self.data_watches.forget()
        self._child_watches.forget()
        self.queue.drop_everything()
        self._again.clear()
        self.queue.put(events.SessionLost())

    def on_session_established(self) -> None:
        """There is a new session and the broker is registered in it: stand for election again."""
        self.queue.put(events.SessionRestored())

    def update_settings(self, settings: ControllerSettings) -> None:
        """Use changed settings; if unclean elections became allowed, they are tried at once."""
        before, self.context.settings = self.context.settings, settings
        if settings.unclean_leader_election_enable and not before.unclean_leader_election_enable:
            self.queue.put(events.UncleanElectionEnabled())
        if settings.auto_leader_rebalance_enable and not before.auto_leader_rebalance_enable:
            self.queue.put(events.LeadersImbalanceDue())

    def on_topic_unclean_election_enabled(self, topic: str) -> None:
        """unclean.leader.election.enable became true for one topic."""
        self.queue.put(events.UncleanElectionEnabled(topic))

    @property
    def is_active(self) -> bool:
        """Whether this broker is controller (it may still be taking over)."""
        return self.context.is_active

    @property
    def epoch(self) -> int:
        """The controller epoch; 0 while not active."""
        return self.context.epoch

    @property
    def active_id(self) -> int:
        """The broker that holds /controller as far as this one knows, -1 for none."""
        return self.context.active_id

    @property
    def state(self) -> int:
        """Kafka's ControllerState gauge."""
        current = self.queue.current
        return 0 if current is None else dispatch.state_of(current.event)

    @property
    def queue_size(self) -> int:
        """The number of waiting events; the one being handled counts too."""
        return len(self.queue)

    async def gauges(self) -> dict[str, int]:
        """Return the controller's metrics by Kafka's names; after an event the cost is linear in partitions."""
        return await self._gauges.now() | {"ControllerState": self.state, "EventQueueSize": self.queue_size}

    async def ask(self, request: events.Request[A]) -> A:
        """Have a request carried out, and return its answer; what concerns one topic or partition of it is in there.

        Raises ApiError(NOT_CONTROLLER) where this broker is not controller or stops being it before the answer
        (ControlledShutdown: STALE_CONTROLLER_EPOCH, as in Kafka).
        """
        if self._task is None or self._session_is_lost:
            raise not_controller(request)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.queue.put(request, answer=answer)
        return await answer

    async def _run(self) -> None:
        while True:
            while self.queue.is_empty:
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._handle(self.queue.take())
            finally:
                self._gauges.forget()
                self.queue.finish()

    async def _handle(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, events.SessionLost):
            await self._resign(envelope)
            return
        if isinstance(event, events.SessionRestored):
            self._session_is_lost = False
            await self._resign(envelope)
        handler = dispatch.ALWAYS.get(type(event))
        if handler is None:
            if not self.context.is_active:
                return  # the caller refuses the requests among these
            handler = dispatch.HANDLERS[type(event)]
        elif self._has_to_wait(event):
            return
        else:
            with garbage_collector.lasting():
                await self._work(handler, envelope)
            return
        await self._work(handler, envelope)

    async def _work(self, handler: dispatch.Handler, envelope: Envelope) -> None:
        """Run one event's procedure; whatever happens, its request is answered."""
        event = envelope.event
        was_active = self.context.is_active
        try:
            await self._drive(handler(self.context, event), envelope)
        except (ControllerMoved, SessionExpired) as moved:
            self._log.warning("resigning", event_id=envelope.id, reason=str(moved))
            await self._resign(envelope)
            if isinstance(moved, ControllerMoved) and not self._session_is_lost:
                self.queue.put(events.ControllerChanged())  # read who is controller, then stand again
        except ApiError as refused:
            envelope.refuse(refused)
        except Exception as bug:
            self._log.exception("an event failed", event_id=envelope.id, kind=type(event).__name__)
            envelope.refuse(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(bug).__name__}: {bug}"))
            if self.context.is_active and not was_active:
                await self._give_up(envelope)
            if isinstance(bug, LogyardError) and envelope.answer is None:
                self._come_again(envelope)
        else:
            unanswered = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller did not answer.")
            envelope.refuse(unanswered)

    def _come_again(self, envelope: Envelope) -> None:
        event = envelope.event
        if event in self._again:
            return
        self._again.append(event)

        def is_wanted() -> bool:
            self._again.remove(event)
            return True

        self.queue.put_later(AFTER_REFUSAL_S, event, cause=envelope.id, is_wanted=is_wanted)

    def _has_to_wait(self, event: Event) -> bool:
        """Whether to wait after a failed take-over, so that another broker can try."""
        wait = self._stand_not_before - asyncio.get_running_loop().time()
        if wait > 0:
            self.queue.put_later(wait, event, cause=0, is_wanted=lambda: True)
        return wait > 0

    async def _resign(self, envelope: Envelope) -> None:
        await self._drive(lifecycle.resign(self.context), envelope, even_without_session=True)
        self.queue.forget_scheduled()
        self._again.clear()

    async def _give_up(self, envelope: Envelope) -> None:
        try:
            await self._drive(controller_election.step_down(self.context), envelope)
        except SessionExpired:
            self._log.warning("the session ended while giving up /controller", event_id=envelope.id)
        self._stand_not_before = asyncio.get_running_loop().time() + _PAUSE_AFTER_FAILED_TAKE_OVER_S
        await self._resign(envelope)

    async def _drive(self, steps: Steps[Any], envelope: Envelope, *, even_without_session: bool = False) -> None:
        if self._observer is not None:
            self._observer(envelope, None)
        results: Sequence[Any] | None = None
        try:
            while True:
                try:
                    batch = next(steps) if results is None else steps.send(results)
                except StopIteration:
                    return
                results = []
                for effect in batch:
                    if self._session_is_lost and not even_without_session:
                        raise SessionExpired("the session ended while an event was being handled")
                    if self._observer is not None:
                        self._observer(envelope, effect)
                    results.append(await self._perform(effect, envelope))
        finally:
            steps.close()

    async def _perform(self, effect: Effect, envelope: Envelope) -> Any:
        result = _PERFORMERS[type(effect)](self, effect, envelope)
        return await result if isawaitable(result) else result

    async def _watch_data(self, effect: effects.WatchData, envelope: Envelope) -> list[Znode | None]:
        known = [path for path, _ in effect.targets if self.data_watches.is_set(path)]
        found = dict(zip(known, await self._zk.read(known) if known else [], strict=True))
        fresh = [(path, event) for path, event in effect.targets if path not in found]
        targets = [(path, self.data_watches.set(path, event)) for path, event in fresh]
        try:
            if len(targets) == 1:
                path, watcher = targets[0]
                found[path] = await self._zk.read_and_watch(path, watcher)  # one round trip instead of two
            elif targets:
                found |= zip((path for path, _ in targets), await self._zk.read_and_watch_all(targets), strict=True)
        except LogyardError:
            for path, _ in targets:
                self.data_watches.unset(path)
            raise
        return [found[path] for path, _ in effect.targets]

    async def _watch_children(self, effect: effects.WatchChildren, envelope: Envelope) -> list[list[str] | None]:
        answers: list[list[str] | None] = []
        for path, event in effect.targets:
            if self._child_watches.is_set(path):
                answers.extend(await self._zk.children([path]))
                continue
            names: list[str] | None = None
            try:
                names = await self._zk.children_and_watch(path, self._child_watches.set(path, event))
            finally:
                if names is None:
                    self._child_watches.unset(path)
            answers.append(names)
        return answers

    async def _send(self, effect: effects.Send, envelope: Envelope) -> None:
        request = effect.request
        is_big = len(request.partitions) >= _BIG_REQUEST
        if is_big:
            await asyncio.sleep(0)
        api_key, version, fields = self._encoder.encode(request)
        if is_big:
            async for _ in portions(self._encoder.write_ahead(fields), lambda partitions: partitions):
                pass
            if self._session_is_lost:
                raise SessionExpired("the session ended while a request was being encoded")
        epoch = self.context.epoch

        def answered(response: Any) -> None:
            if response is not None and self.context.epoch == epoch:
                self._put_answer(request, response, envelope.id)

        # The broker's log has the request's correlation id, and so the event that caused it (`logyard story`).
        self._peers.send(request.broker_id, api_key, version, fields, answered, envelope.id & 0x7FFFFFFF)

    def _put_answer(self, request: BrokerRequest, response: Any, cause: int) -> None:
        try:
            event = encoding.answered(request, response)
        except (AttributeError, TypeError, ValueError) as problem:
            self._log.error("an answer cannot be read", event_id=cause, peer=request.broker_id, reason=str(problem))
            return
        if event is not None:
            self.queue.put(event, cause=cause)

    def _schedule(self, effect: effects.Schedule, envelope: Envelope) -> None:
        epoch = self.context.epoch
        self.queue.put_once(
            effect.delay_s, effect.event, cause=envelope.id, is_wanted=lambda: epoch == self.context.epoch
        )

    def _note(self, effect: effects.Note, envelope: Envelope) -> None:
        log = getattr(self._log, effect.level)
        log(
            effect.text, event_id=envelope.id, cause=envelope.cause, kind=type(envelope.event).__name__, **effect.fields
        )


_PERFORMERS: dict[type, Callable[[ControllerRunner, Any, Envelope], Any]] = {
    effects.ZkMulti: lambda runner, effect, _: runner._zk.pipeline(effect.multis),
    effects.ZkRead: lambda runner, effect, _: (
        read_each(runner._zk, effect.paths) if effect.each else runner._zk.read(effect.paths)
    ),
    effects.ZkChildren: lambda runner, effect, _: runner._zk.children(effect.paths),
    effects.WatchData: ControllerRunner._watch_data,
    effects.WatchChildren: ControllerRunner._watch_children,
    effects.OpenPeer: lambda runner, effect, _: runner._peers.add_broker(effect.broker),
    effects.ClosePeer: lambda runner, effect, _: runner._peers.remove_broker(effect.broker_id),
    effects.Send: ControllerRunner._send,
    effects.Answer: lambda _, effect, envelope: envelope.reply(effect.value),
    effects.Enqueue: lambda runner, effect, envelope: runner.queue.put(effect.event, cause=envelope.id),
    effects.Schedule: ControllerRunner._schedule,
    effects.Draw: lambda runner, effect, _: [runner._chance.below(bound) for bound in effect.bounds],
    effects.NewTopicIds: lambda runner, effect, _: [runner._chance.topic_id() for _ in range(effect.count)],
    effects.Now: lambda runner, effect, _: runner._clock.now_ms(),
    effects.EpochSeen: lambda runner, *_: runner._epoch_seen(),
    effects.SessionId: lambda runner, effect, _: runner._zk.session_id,
    effects.Note: ControllerRunner._note,
    effects.Turn: lambda *_: asyncio.sleep(0),
}
