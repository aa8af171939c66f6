"""Becoming controller: the race for /controller, and resigning.

Rule 1: one transaction creates /controller (ephemeral) and increments /controller_epoch on the version just read, so
that a controller and its epoch come into being together.
Rule 2: the winner knows the epoch and the version of its znode; every later write checks that version.
Rule 3: after a lost reply the znodes are read again. The race was won if /controller is ours, of this session, with the
epoch that we tried.
Rule 4: a broker whose own session holds /controller without acting as controller deletes it.
Rule 5: these are the only unfenced writes of the controller.
Rule 6: no epoch is used twice, even if /controller_epoch was deleted or set back. The next epoch is above every epoch
that this broker has seen, above that of every partition state (`rise_above`), and above what another broker turns out
to have seen (`outdo`). Kafka would begin at 1 again, and its brokers would refuse that controller.
Rule 7: one wrong request or state must not use up the numbers. Epochs above `znode.BELIEVED_MAX` are ignored, and the
controller moves to a later epoch for one broker at most three times; after that the broker refuses its controller until
it is restarted.
"""

from logyard.broker.controller import effects, fencing
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Steps
from logyard.broker.controller.events import ControllerChanged
from logyard.broker.errors import CorruptData
from logyard.broker.znodes import controller as znode
from logyard.broker.znodes.ops import Create, Delete, SetData, Znode

NOBODY = -1
# By how much the epoch grows the first, the second and the third time for one broker.
_FAR = (100, 10_000, 1_000_000)


def elect(context: ControllerContext) -> Steps[bool]:
    """Watch /controller and stand for election if it is vacant; return whether this broker is controller now."""
    found = (yield from effects.watch_data([(znode.PATH, ControllerChanged())]))[0]
    context.active_id = yield from _holder(found)
    if found is not None:
        yield from effects.note("another broker is controller", level="debug", controller=context.active_id)
        return False
    epoch_znode = yield from _epoch_znode()
    written = znode.decode_epoch(epoch_znode.data)
    seen = max(context.last_epoch, znode.believed([(yield from effects.epoch_seen())]))
    if written < seen:
        yield from effects.note(
            "/controller_epoch was deleted or set back: the next epoch is above all seen",
            level="warning",
            found=written,
            seen=seen,
        )
    epoch = max(written, seen) + 1
    now = yield from effects.now_ms()
    own = context.settings.broker_id
    answer = yield from effects.multi(
        [
            [
                Create(znode.PATH, znode.encode(own, now), ephemeral=True),
                SetData(znode.EPOCH_PATH, znode.encode_epoch(epoch), epoch_znode.version),
            ]
        ]
    )
    results = answer[0]
    version: int | None = results[1].version
    if not all(result.ok for result in results):
        version = yield from _won_after_all(own, epoch)
    if version is None:
        yield from effects.note("another broker was faster", reason=fencing.deciding(results).code.value)
        # The winner's znode may be gone again already; the watch that was set above will fire then.
        return False
    context.epoch = epoch
    context.epoch_zk_version = version
    context.active_id = own
    yield from effects.note("elected as controller", epoch=epoch)
    return True


def rise_above(context: ControllerContext, seen: int) -> Steps[None]:
    """Move to an epoch above `seen`, before anything was done in this one; raises ControllerMoved."""
    if seen < context.epoch:
        return
    epoch = seen + 1
    yield from effects.note(
        "partition states name later epochs: moving above them", level="warning", before=context.epoch, epoch=epoch
    )
    op = SetData(znode.EPOCH_PATH, znode.encode_epoch(epoch), context.epoch_zk_version)
    written = yield from fencing.write_one(context, op)
    if not written.ok or written.version is None:
        raise fencing.ControllerMoved(f"{znode.EPOCH_PATH} could not be raised: {written.code.value}")
    context.epoch, context.epoch_zk_version = epoch, written.version


def outdo(context: ControllerContext, broker: int) -> Steps[None]:
    """A broker has seen a later epoch than this controller's: have a controller elected far above it. Raises
    ControllerMoved.

    If the later epoch is that of a later controller, the fence fails, and nothing is written. After three times for one
    broker it returns without doing anything.
    """
    tries = context.outdone.get(broker, 0)
    if tries == len(_FAR):
        return
    yield from effects.note(
        "a broker has seen a later controller epoch", level="warning", peer=broker, epoch=context.epoch
    )
    raised = SetData(znode.EPOCH_PATH, znode.encode_epoch(context.epoch + _FAR[tries]), context.epoch_zk_version)
    yield from fencing.write_one(context, raised, Delete(znode.PATH))
    context.outdone[broker] = tries + 1
    raise fencing.ControllerMoved(f"broker {broker} has seen a later controller epoch than {context.epoch}")


def step_down(context: ControllerContext) -> Steps[None]:
    """Delete /controller, fenced, so that another broker is elected, after an error that no controller should
    survive."""
    try:
        yield from fencing.write_one(context, Delete(znode.PATH))
    except fencing.ControllerMoved:
        yield from effects.note("another broker is controller already")


def look(context: ControllerContext) -> Steps[bool]:
    """Read and watch /controller; return whether it is still this broker's.

    A broker that resigned because something other than a controller raised the epoch still has the znode, so nobody
    could be elected until its session ends. The znode is deleted here, and its watch fires.
    """
    found = (yield from effects.watch_data([(znode.PATH, ControllerChanged())]))[0]
    context.active_id = yield from _holder(found)
    ours = context.active_id == context.settings.broker_id
    if ours and found is not None and not context.is_active:
        session = yield from effects.session_id()
        if found.ephemeral_owner == session:
            yield from effects.note("deleting our own /controller", level="warning")
            yield from effects.multi([[Delete(znode.PATH, found.version)]])
    return ours


def _holder(found: Znode | None) -> Steps[int]:
    if found is None:
        return NOBODY
    try:
        return znode.decode(found.data)
    except CorruptData as problem:
        yield from effects.note("/controller cannot be read", level="error", reason=str(problem))
        return NOBODY


def _epoch_znode() -> Steps[Znode]:
    found = (yield from effects.read([znode.EPOCH_PATH]))[0]
    if found is None:
        # Two brokers may do this at once; the second one reads the znode of the first.
        yield from effects.multi([[Create(znode.EPOCH_PATH, znode.encode_epoch(znode.INITIAL_EPOCH))]])
        found = (yield from effects.read([znode.EPOCH_PATH]))[0]
    if found is None:
        raise CorruptData(f"znode {znode.EPOCH_PATH} cannot be created: check the rights of this broker's session")
    return found


def _won_after_all(own: int, epoch: int) -> Steps[int | None]:
    """After a failed transaction, return the epoch znode's version if both znodes are ours nevertheless."""
    found, epoch_znode = yield from effects.read([znode.PATH, znode.EPOCH_PATH])
    if found is None or epoch_znode is None:
        return None
    session = yield from effects.session_id()
    try:
        ours = znode.decode(found.data) == own and found.ephemeral_owner in (0, session)
        return epoch_znode.version if ours and znode.decode_epoch(epoch_znode.data) == epoch else None
    except CorruptData:
        return None
