"""A request of a fetch session that is never answered, as its client has gone on without it."""

from logyard.broker.errors import ErrorCode
from tests.support.disk_logs import parse
from tests.support.replica_world import T0, T1, follower_fetch, produce
from tests.unit.replication.fetch.test_sessions import MB, Client, SessionWorld, ask


def test_what_an_unanswered_request_has_read_is_read_by_the_next_one() -> None:
    """A client that lost its connection and went on with its session missed records until others came."""
    world = SessionWorld()
    client = Client(world)
    client.fetch(ask(), ask(T1))
    produce(world)
    follower_fetch(world, 2, 1)
    client.wait_ms = 1000
    params = client.params()
    params.min_bytes = MB
    context = client.open()
    waiting = world.replicas.fetching.fetch(params, context.source)
    assert not isinstance(waiting, list)
    assert not waiting.done()
    client.epoch, client.wait_ms = client.epoch + 1, 0
    assert len(parse(client.fetch()[T0].records)) == 1
    assert context.finish([])[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH
