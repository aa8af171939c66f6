"""Where the product asks what time it is by the wall, and why it may: everything else is measured on a monotonic clock.

A wall clock is set by people and by NTP, forward and back. So it may be used for what people read, for what is stored
beside records and compared with their timestamps, and for what has to mean the same in another process.
"""

import ast
import re
from collections.abc import Iterator

# Calls and attributes that tell the time by the wall, by their last two names.
ASKING = frozenset(
    {
        ("time", "time"),
        ("time", "time_ns"),
        ("time", "localtime"),
        ("time", "gmtime"),
        ("time", "ctime"),
        ("time", "strftime"),
        ("datetime", "now"),
        ("datetime", "utcnow"),
        ("datetime", "today"),
        ("date", "today"),
        ("timezone", "utcnow"),
        ("path", "getmtime"),
        ("path", "getctime"),
    }
)
# Names of our own: the clock's port, and the times of a file.
OWN = frozenset({"now_ms", "wall_ms", "st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns"})
CLOCKS = ("clock", "clocks")
# What a file has to contain for a look at its tree to be worth while.
_NAMES = "|".join(sorted({name for _, name in ASKING} | OWN))
PERHAPS = re.compile(rf"\.\s*(?:{_NAMES})\b|\bfrom (?:time|os\.path) import")


def uses(source: str) -> Iterator[tuple[str, int]]:
    """Yield the function (`Class.method`, "" for the module) and line of every place that asks a wall clock."""
    if PERHAPS.search(source):
        yield from _uses(ast.parse(source), "")


def _uses(node: ast.AST, within: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        within = f"{within}.{node.name}" if within else node.name
    if isinstance(node, ast.Attribute) and _asks(node):
        yield within, node.lineno
    if isinstance(node, ast.ImportFrom) and node.module in ("time", "os.path"):
        for alias in node.names:
            if (node.module.rpartition(".")[2], alias.name) in ASKING:
                yield within, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, within)


def _asks(node: ast.Attribute) -> bool:
    owner = _last_name(node.value)
    if (owner, node.attr) in ASKING:
        return True
    if node.attr in ("now_ms", "wall_ms"):
        return owner.strip("_") in CLOCKS
    return node.attr in OWN


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# Where the wall clock is right, as module:function, by the reason.
ALLOWED: dict[str, tuple[str, ...]] = {
    "the port itself": (
        "broker.clock:SystemClock.now_ms",
        "plugins.logyard_ui.cache.cache:Clocks",
    ),
    "shown to people and to other programs: when something was seen, begun or ended, or is going to end": (
        "admin.cluster.client:_snapshot",
        "admin.zookeeper.cluster_client:ZooKeeperClusterClient.snapshot",
        "broker.broker:Broker.register",
        "broker.controller.runner:",
        "broker.leases.leases:Leases.close",
        "broker.leases.leases:Leases.log_truncated",
        "broker.leases.leases:Leases.log_moved",
        "broker.leases.leases:Leases.leased_log",
        "broker.leases.leases:Leases.expire_due",
        "broker.leases.leases:Leases.on_deleted",
        "broker.leases.leases:Leases.on_follower",
        "broker.leases.leases:Leases.on_leader",
        "broker.leases.service:LeaseService._commit_failed",
        "broker.leases.service:LeaseService._pieces",
        "broker.leases.restart:_go_on",
        "broker.leases.grants:_set_up",
        "broker.http.run_tokens:RunTokens._extend",
        "plugins.logyard_ui.cluster.clusters:CachedCluster._read_state",
        "plugins.logyard_ui.cluster.clusters:CachedCluster.gathered.read",
        "plugins.logyard_ui.cluster.clusters:CachedCluster.sizes.read",
        "plugins.logyard_ui.cluster.clusters:CachedCluster.transactions.read",
        "plugins.logyard_ui.views.history:slot_now",
        "plugins.logyard_ui.cache.cache:ClusterCache._read",
    ),
    "credentials, tokens and certificates say when they expire": (
        "broker.broker:Broker._credential_sources",
        "local.authority:_builder",
        "broker.components:Components.__init__",
    ),
    "a number that no counting can have reached, where the count is lost": (
        "broker.components:Components._producer_ids",
    ),
    "a date in a file's head, a report or a name": (
        "broker.log.store:LogStore.claim",
        "local.demo.run:run",
        "spark_jobs.audit.job:_report",
        "spark_jobs.cluster:run_id",
    ),
    "stored, for a process after this one": (
        "plugins.logyard_ui.history.sampler:Sampler.__init__",
        "broker.http.run_tokens:RunTokens.rows",
        "broker.http.run_tokens:RunTokens.take",
        "broker.groups.commits:Commits.commit",
        "broker.groups.commits:Commits.commit_in_transaction",
        "broker.groups.runner:GroupCoordinator._load",
        "broker.groups.runner:GroupCoordinator._now",
        "broker.transactions.runner:TransactionCoordinator._now",
        "broker.groups.runner:GroupCoordinator.join",
        "broker.leases.leases:Leases.__init__",
        "broker.leases.service:LeaseService._commit",
        "broker.leases.restart:_finish_commit",
        "broker.leases.restart:_restore_log",
        "broker.server.handlers.offset_commit:handle",
        "broker.server.handlers.txn_offset_commit:handle",
    ),
    "handed to a task or a triggerer that goes on elsewhere; who takes it over asks the wall once": (
        "operators.base:ClusterOperator.waiting",
        "operators.controller:RecoverControllerOperator._round",
        "operators.reassignment:ExecuteReassignmentOperator._finish",
        "operators.reassignment:ExecuteReassignmentOperator.execute",
        "operators.hooks.records:RecordsHook.client_options",
        "operators.sensors.cluster:ClusterSensor._trigger",
        "operators.sensors.records:AwaitRecordSensor._wait",
        "operators.sensors.records:AwaitRecordSensor._awaited",
        "operators.triggers.records:AwaitRecordTrigger._awaited",
        "operators.triggers.base:ClusterTrigger._outcome",
    ),
    "records' timestamps: given to records, or a retention, lag or duration held against them": (
        "broker.cleaner.catch_up:CatchUp._is_missing",
        "broker.cleaner.cleaner:LogCleaner._judge",
        "broker.groups.commits:Commits._outlived.since",
        "broker.groups.offsets_log:ReplicatedOffsets.append",
        "broker.server.handlers.list_transactions:handle",
        "broker.transactions.state_log:ReplicatedStates.append",
        "broker.leases.service:LeaseService._partitions",
        "broker.log.expiry:Expiry.expire_producers",
        "broker.log.expiry:Expiry.delete_old_segments",
        "broker.replication.produce:Producing.append",
        "broker.replication.produce:Producing.begin_verification",
        "broker.replication.produce:Producing.begin_validation",
        "broker.replication.replicas:Replicas.gauges",
        "broker.transactions.markers.writing:MarkerWriter._append",
        "cli.groups:_time",
        "cli.transactions:_now_ms",
        "operators.reports:RetentionReportOperator.execute",
        "operators.transactions:AbortHangingTransactionsOperator.execute",
    ),
    "a segment's creation, which stands in where records have no timestamps, as in Kafka": (
        "broker.log.registry:LogRegistry._create",
        "broker.log.registry:LogRegistry.take_in",
        "broker.log.store:LogStore._load_found.worker",
    ),
    "held against when a table's states were made, by any program": ("spark_jobs.maintenance.expiry:Expiry._due",),
    "held against what a file system or ZooKeeper has dated": (
        "broker.server.handlers.list_offsets:_Listing.look_up",
        "plugins.logyard_ui.static_files:Editions._signature",
        "broker.log.disk.real:OsDisk.status",
        "broker.zk.tree:ZooKeeperTree._apply",
        "broker.zk.tree:ZooKeeperTree._create",
        "cli.zk:_now_ms",
        "spark_jobs.export.staging:_last_touched",
        "spark_jobs.export.staging:_now",
        "spark_jobs.export.staging:stale_drafts",
    ),
}
