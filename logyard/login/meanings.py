"""What Kafka's error codes and kafka-python's errors mean, in words for those who gave a command: brokers tell many
codes without a text."""

from typing import Any

from logyard.broker.errors import ErrorCode as E

_MEANINGS = {
    E.UNKNOWN_SERVER_ERROR: "the broker failed, and its log says why",
    E.NONE: "it is done",
    E.OFFSET_OUT_OF_RANGE: "the log does not have this offset",
    E.CORRUPT_MESSAGE: "the records are damaged, or have no key where the topic is compacted",
    E.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    E.INVALID_FETCH_SIZE: "the number of bytes to fetch is negative",
    E.LEADER_NOT_AVAILABLE: "the partition has no leader now: try again",
    E.NOT_LEADER_OR_FOLLOWER: "another broker leads the partition now: try again",
    E.REQUEST_TIMED_OUT: "it was not done in time, and may still be",
    E.BROKER_NOT_AVAILABLE: "the broker does not run",
    E.REPLICA_NOT_AVAILABLE: "the broker has no replica of the partition",
    E.MESSAGE_TOO_LARGE: "the records are larger than the topic allows (max.message.bytes)",
    E.STALE_CONTROLLER_EPOCH: "a newer controller was elected: try again",
    E.OFFSET_METADATA_TOO_LARGE: "the text beside the offset is longer than the brokers allow",
    E.NETWORK_EXCEPTION: "the connection between brokers was lost: try again",
    E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading: try again",
    E.COORDINATOR_NOT_AVAILABLE: "there is no coordinator now: try again",
    E.NOT_COORDINATOR: "another broker is the coordinator now: try again",
    E.INVALID_TOPIC_EXCEPTION: "this name cannot be a topic's, or the topic is one of Kafka's own",
    E.RECORD_LIST_TOO_LARGE: "the records are larger than a segment of the topic",
    E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic asks for (min.insync.replicas)",
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records are written, but to fewer replicas than the topic asks for",
    E.INVALID_REQUIRED_ACKS: "acks can be all (-1), 0 or 1",
    E.ILLEGAL_GENERATION: "the group has rebalanced since",
    E.INCONSISTENT_GROUP_PROTOCOL: "the group's members have no assignor in common with this one",
    E.INVALID_GROUP_ID: "this cannot be a group's name",
    E.UNKNOWN_MEMBER_ID: "the group is in use by members of which this is none",
    E.INVALID_SESSION_TIMEOUT: "the brokers do not allow this session.timeout.ms",
    E.REBALANCE_IN_PROGRESS: "the group is rebalancing: try again",
    E.INVALID_COMMIT_OFFSET_SIZE: "the offsets to commit are larger than the brokers allow",
    E.TOPIC_AUTHORIZATION_FAILED: "access to the topic is denied",
    E.GROUP_AUTHORIZATION_FAILED: "access to the group is denied",
    E.CLUSTER_AUTHORIZATION_FAILED: "access to the cluster is denied",
    E.INVALID_TIMESTAMP: "the time is outside of what the topic allows",
    E.UNSUPPORTED_SASL_MECHANISM: "the listener does not have this SASL mechanism",
    E.ILLEGAL_SASL_STATE: "the listener does not expect a log-in here",
    E.UNSUPPORTED_VERSION: "the broker is too old, or too new, for this request",
    E.TOPIC_ALREADY_EXISTS: "the topic exists",
    E.INVALID_PARTITIONS: "this number of partitions is not possible",
    E.INVALID_REPLICATION_FACTOR: "this number of replicas is not possible",
    E.INVALID_REPLICA_ASSIGNMENT: "these replicas are not possible",
    E.INVALID_CONFIG: "a setting has a value that is not possible",
    E.NOT_CONTROLLER: "another broker is the controller now: try again",
    E.INVALID_REQUEST: "the broker does not take such a request, and its log says why",
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old for this",
    E.POLICY_VIOLATION: "a policy of the brokers forbids it",
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: "records of the producer are missing before these",
    E.DUPLICATE_SEQUENCE_NUMBER: "these records were written before",
    E.INVALID_PRODUCER_EPOCH: "a newer producer has taken over",
    E.INVALID_TXN_STATE: "the transaction is not in a state for this",
    E.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id",
    E.INVALID_TRANSACTION_TIMEOUT: "its time is longer than the brokers allow (transaction.max.timeout.ms)",
    E.CONCURRENT_TRANSACTIONS: "the producer's last transaction is still being ended: try again",
    E.TRANSACTION_COORDINATOR_FENCED: "another broker is the transaction's coordinator now",
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "access to the transactional id is denied",
    E.SECURITY_DISABLED: "the brokers have no authorizer (authorizer.class.name)",
    E.OPERATION_NOT_ATTEMPTED: "it was not tried, as another part of the request was refused",
    E.KAFKA_STORAGE_ERROR: "the broker's disk, or the directory of the log, has failed",
    E.LOG_DIR_NOT_FOUND: "the broker has no such log directory, or it is offline",
    E.SASL_AUTHENTICATION_FAILED: "the log-in is refused",
    E.UNKNOWN_PRODUCER_ID: "the broker does not know the producer any more",
    E.REASSIGNMENT_IN_PROGRESS: "the partition is being reassigned: wait until it is done",
    E.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation tokens (delegation.token.secret.key)",
    E.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    E.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to others",
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens need a log-in by other means on a secured listener",
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "access to the delegation token is denied",
    E.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired",
    E.INVALID_PRINCIPAL_TYPE: "the principal has to be a User",
    E.NON_EMPTY_GROUP: "the group has members: stop its consumers first",
    E.GROUP_ID_NOT_FOUND: "the group does not exist",
    E.FETCH_SESSION_ID_NOT_FOUND: "the broker has forgotten the fetch session: try again",
    E.INVALID_FETCH_SESSION_EPOCH: "the fetch session is out of step: try again",
    E.LISTENER_NOT_FOUND: "the leader has no listener of this name",
    E.TOPIC_DELETION_DISABLED: "the brokers delete no topics (delete.topic.enable)",
    E.FENCED_LEADER_EPOCH: "the partition has a newer leader: try again",
    E.UNKNOWN_LEADER_EPOCH: "the broker has not heard of the partition's newest leader yet: try again",
    E.UNSUPPORTED_COMPRESSION_TYPE: "this client is too old for the records' compression",
    E.STALE_BROKER_EPOCH: "the broker has restarted since: try again",
    E.OFFSET_NOT_AVAILABLE: "the partition's new leader does not know its end yet: try again",
    E.MEMBER_ID_REQUIRED: "the group first gives a member its id: try again",
    E.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica does not run, or is not in sync",
    E.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers allow",
    E.FENCED_INSTANCE_ID: "another member of the group has this group.instance.id",
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that runs may become leader",
    E.ELECTION_NOT_NEEDED: "no election is needed",
    E.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being reassigned",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read the topic: stop them first",
    E.INVALID_RECORD: "a record is not as the topic asks for",
    E.UNSTABLE_OFFSET_COMMIT: "a transaction is about to commit offsets of the partition: try again",
    E.THROTTLING_QUOTA_EXCEEDED: "a quota of this user is used up: try again later",
    E.PRODUCER_FENCED: "a newer producer has this transactional id",
    E.RESOURCE_NOT_FOUND: "there is none of this name",
    E.DUPLICATE_RESOURCE: "one name is given twice",
    E.UNACCEPTABLE_CREDENTIAL: "the brokers do not allow this password, or this number of iterations",
    E.INCONSISTENT_VOTER_SET: "the broker is none of the controllers that vote",
    E.INVALID_UPDATE_VERSION: "a newer update was made since: try again",
    E.FEATURE_UPDATE_FAILED: "the feature's level could not be changed, and the controller's log says why",
    E.PRINCIPAL_DESERIALIZATION_FAILURE: "the controller cannot read who asked",
    E.SNAPSHOT_NOT_FOUND: "there is no such snapshot",
    E.POSITION_OUT_OF_RANGE: "the snapshot does not have this position",
    E.UNKNOWN_TOPIC_ID: "no topic has this id",
    E.DUPLICATE_BROKER_REGISTRATION: "another broker runs with this id",
    E.BROKER_ID_NOT_REGISTERED: "no broker has registered with this id",
    E.INCONSISTENT_TOPIC_ID: "the topic was deleted and made anew since: try again",
    E.INCONSISTENT_CLUSTER_ID: "the broker belongs to another cluster",
    E.TRANSACTIONAL_ID_NOT_FOUND: "there is no transactional id of this name",
    E.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes names and ids of topics: try again",
    E.INELIGIBLE_REPLICA: "a replica may not be in sync now: try again",
    E.NEW_LEADER_ELECTED: "another leader was elected",
    E.MISMATCHED_ENDPOINT_TYPE: "a broker was asked for what controllers do, or the other way round",
    E.UNSUPPORTED_ENDPOINT_TYPE: "the server is neither asked as a broker nor as a controller",
    E.TRANSACTION_ABORTABLE: "the transaction can only be aborted",
}


def meaning(number: int) -> str:
    """Return what an error's number means, without a full stop; one of a later Kafka is told by its number."""
    code = E(number)
    if code is E.UNKNOWN_SERVER_ERROR and number != code:
        return f"the broker answers with error {number}, which is not known here"
    return _MEANINGS[code]


def of_library(theirs: Any) -> str:
    """Return what a BrokerResponseError of kafka-python means, with what the broker has said; its own text begins with
    `[Error 69] GroupIdNotFoundError`."""
    name = type(theirs).__name__
    said = str(theirs).partition(name)[2].removeprefix(":").strip()
    said = said.removeprefix(f"{name}:").strip()  # that of a login is in there twice
    means = meaning(theirs.errno)
    return f"{means} ({said})" if said else means


def plain(problem: Exception) -> str:
    """An error in words: the system's without its number, kafka-python's without the name of its class, brokers' by
    what they mean."""
    from kafka import errors as theirs

    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror.lower()
    if isinstance(problem, (theirs.RequestTimedOutError, theirs.KafkaTimeoutError)):
        return "no answer in time"  # kafka-python's own, here
    if isinstance(problem, theirs.BrokerResponseError):
        return of_library(problem)
    name = type(problem).__name__
    return str(problem).removeprefix(f"{name}:").strip() or name


def silence(theirs: Exception) -> str:
    """Why a request of kafka-python got no answer, in words."""
    name = type(theirs).__name__
    said = str(theirs).removeprefix(f"{name}:").removeprefix(name).strip()
    match name:
        case "NodeNotReadyError" | "NoBrokersAvailable":
            return f"no connection to broker {said}" if said.isdecimal() else "no connection to a broker"
        case "KafkaTimeoutError" | "RequestTimedOutError":
            return "no answer in time"
        case "KafkaConnectionError":
            return f"the connection was lost{f' ({said})' if said else ''}"
    return said or name


def unanswered(theirs: Exception) -> str:
    """Why a request of kafka-python failed, in words: what a broker refuses it by, else why there is no answer."""
    from kafka import errors

    is_refusal = isinstance(theirs, errors.BrokerResponseError)
    return plain(theirs) if is_refusal or isinstance(theirs, OSError) else silence(theirs)
