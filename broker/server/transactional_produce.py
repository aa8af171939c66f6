"""Transactional Produce: what would begin a transaction in a partition is verified before it is appended (facts §17.3).

Where the coordinator has to be asked, the connection's next requests wait for the append; nobody else waits. Small ones
are verified meanwhile, in one question to each coordinator: some clients send a request for each partition.
"""

from collections.abc import Awaitable, Mapping

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.protocol.produce import ProduceRequest
from logyard.broker.records.header import is_transactional, producer_of
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.produce import Entries
from logyard.broker.server import producing
from logyard.broker.server.producing import Results, ResultsOrPending
from logyard.broker.server.request import Request
from logyard.broker.server.services import Services
from logyard.broker.transactions.verification import Ability, Errors, FirstBatch

ABORTABLE_SINCE, ADDS_SINCE = 11, 12

_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def ability(version: int, *, abortable_since: int, adds_since: int) -> Ability:
    """What a client knows that sends this version of a request."""
    if version >= adds_since:
        return Ability.ADDS
    return Ability.KNOWS_ABORTABLE if version >= abortable_since else Ability.OLD


def verify(services: Services, version: int, asked: ProduceRequest, entries: Entries) -> Errors | Awaitable[Errors]:
    """Verify the batches that would begin a transaction in their partition. Awaitable: the coordinator is asked.

    The transactional batches among `entries` are those of one producer (`producing.fault_of`).
    """
    producer_id = epoch = -1
    batches = []
    for tp, records in entries:
        if is_transactional(records):
            producer_id, epoch, sequence = producer_of(records)
            batches.append(FirstBatch(tp, sequence))
    if producer_id < 0 or asked.transactional_id is None:
        return {}  # the log refuses transactional batches without a producer id
    known = ability(version, abortable_since=ABORTABLE_SINCE, adds_since=ADDS_SINCE)
    return services.verification.begin(asked.transactional_id, producer_id, epoch, batches, known)


def verified(version: int, entries: Entries, errors: Errors) -> tuple[Entries, Results]:
    """Return the entries that may be appended, and the results of the others."""
    if not errors:
        return entries, []
    refused = [_unverified(version, tp, errors[tp]) for tp, _ in entries if tp in errors]
    return [entry for entry in entries if entry[0] not in errors], refused


def _unverified(version: int, tp: TopicPartition, code: ErrorCode) -> ProduceResult:
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_SINCE:
        return ProduceResult(tp, code)  # these clients expect it: the transaction before is being ended
    if code in _ASK_AGAIN:
        # Clients retry after this error, without a metadata refresh. Old clients do not expect the others here.
        text = f"not known to be part of the transaction: {code.name}"
        return ProduceResult(tp, ErrorCode.NOT_ENOUGH_REPLICAS, message=text)
    why = "the partition was not added to the transaction" if code is ErrorCode.INVALID_TXN_STATE else None
    return ProduceResult(tp, code, message=why)


async def append_verified(
    services: Services,
    request: Request,
    asked: ProduceRequest,
    entries: Entries,
    verifying: Errors | Awaitable[Errors],
    before: Awaitable[None] | None = None,
) -> tuple[ResultsOrPending, Results]:
    """Wait for the coordinator's answer, and for `before`, then append. Returns the results, and those of the refused
    entries.

    Raises ApiError(NETWORK_EXCEPTION), and appends nothing, if the client has closed the connection meanwhile: it may
    have ended the transaction over another connection, and begun the next one (KAFKA-17754).
    """
    replicas, session = services.replicas, request.session
    errors = verifying if isinstance(verifying, Mapping) else await verifying
    if before is not None:
        await before
    entries, unverified = verified(request.api_version, entries, errors)
    if session.is_gone and asked.acks != 0:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the client has gone")
    validation = producing.begin_validation(replicas, session, asked, entries)
    if validation.running is None:
        return producing.append(replicas, asked, entries, validation.by), unverified
    results, rejected = await producing.append_validated(replicas, session, asked, validation)
    return results, unverified + rejected
