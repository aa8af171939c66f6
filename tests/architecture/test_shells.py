"""Only shells touch asyncio, threads, sockets, files and clocks: each module that does is listed, with its reason.

The list holds for the broker and `logyard/admin`, whose logic is to be tested with neither a process nor a wait. A
module that is not listed takes a port instead; an entry that touches nothing any more has to go.
"""

import ast

import pytest

from tests.support import floors

ROOTS = ("broker", "admin")
IMPURE = {
    "asyncio",
    "concurrent",
    "fcntl",
    "http",
    "kazoo",
    "logging",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "select",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uvicorn",
}

SHELLS = {
    "broker.__main__": "the process: its event loop, signals, logging, and the file of settings",
    "broker.broker": "starts and stops everything on the loop, and makes the pool of threads and the dice",
    "broker.components": "hands the loop and its timers to the parts",
    "broker.coordinators": "hands the loop to the coordinators, and keeps their tasks",
    "broker.clock": "is the port of the clocks",
    "broker.log_format": "formats what libraries write through logging",
    "broker.portions": "lets others have a turn between two portions",
    "broker.tasks": "starts every task and tries again",
    "broker.config.broker": "an unset host name is that of the machine",
    "broker.cleaner.catch_up": "waits for replicas that were away, and runs beside the broker",
    "broker.cleaner.child": "is the program of a child process: its thread, signals and pause",
    "broker.cleaner.cleaner": "looks for dirty logs at intervals",
    "broker.cleaner.own_run": "waits for a worker while it renews the lease",
    "broker.compiled.kernel_place": "looks at the directory in which compiled kernels are kept",
    "broker.compiled.key_table": "maps memory for keys, with no file behind it, and gives it back piece by piece",
    "broker.cleaner.worker": "starts the child process and talks to it",
    "broker.client.alter_partition": "sends ISR changes one after the other, again after a pause",
    "broker.client.controller_requests": "pauses before it asks the controller again",
    "broker.client.http_get": "asks other brokers' HTTP servers, in a thread",
    "broker.client.link": "is the connection to another broker",
    "broker.client.peer_security": "makes the connections to other brokers",
    "broker.client.peers": "has a task for each broker that the controller sends to",
    "broker.client.producer_ids": "waits for the next block within a deadline",
    "broker.compiled.loading": "waits for the child that compiles",
    "broker.compiled.prepared": "compiles with a low priority",
    "broker.controller.runner": "runs the generators: their queue, effects and pauses",
    "broker.groups.runner": "holds the futures of who waits for a group, and loads in tasks",
    "broker.transactions.ends": "holds the futures of who waits for the end of a transaction",
    "broker.transactions.runner": "holds the futures of who waits for a transaction, and loads in tasks",
    "broker.transactions.markers.runner": "sends markers in tasks",
    "broker.http.bodies": "waits a moment for the rest of a refused request",
    "broker.http.identities": "has those who guess wait, and looks at one password at a time",
    "broker.http.metrics": "makes the text in a thread, for one scrape after the other",
    "broker.http.run_file": "reads and writes the file of runs",
    "broker.http.tls_connections": "puts TLS before a connection",
    "broker.http.server": "binds the socket and runs uvicorn",
    "broker.http.uvicorn_parts": "chooses what of uvicorn is imported; it runs nothing",
    "broker.http.token": "writes the file of the token",
    "broker.leases.leases": "keeps the tasks in which a lease's work goes on",
    "broker.leases.quarantine": "waits until the replica is out of the ISR",
    "broker.leases.service": "lets a commit go on when its caller is gone",
    "broker.log.background": "flushes, expires and writes checkpoints at intervals",
    "broker.log.checkpoint_writer": "lets one writer at a time",
    "broker.log.flusher": "wakes when something is to be flushed",
    "broker.log.space": "waits for the disks' bytes a while",
    "broker.log.store": "loads directories in threads, side by side",
    "broker.log.file_part": "sends from a file to a socket",
    "broker.log.disk.page_cache": "asks the system what is in memory",
    "broker.log.disk.real": "is the port of the disk: system calls",
    "broker.protocol.codec": "counts what the request of each thread takes in memory",
    "broker.records.pauses": "counts what each thread has read since its last pause",
    "broker.records.room": "has threads wait for memory that others use",
    "broker.replication.follower.fetcher": "fetches from a leader in a loop of its own",
    "broker.security.delegation_tokens": "takes one token at a time",
    "broker.security.signing_keys": "reads the keys of tokens at intervals",
    "broker.server.logins.login": "waits before it answers a refused log-in, and times sessions",
    "broker.security.acls.store": "changes one pattern at a time, again after a pause",
    "broker.security.acls.watcher": "names the event that a watch sets",
    "broker.server.admission": "has connections wait until there is room",
    "broker.server.answer_writer": "writes to a connection's transport",
    "broker.server.api": "names the future that a handler may return",
    "broker.server.auto_creation": "has clients wait for the controller, but not for long",
    "broker.server.connection": "is the protocol of a client's connection",
    "broker.server.controller_orders": "gives the loop a turn between portions, and carries out one order at a time",
    "broker.server.dispatch": "measures handlers, and waits for those that answer later",
    "broker.server.file_answers": "sends to a connection's socket",
    "broker.server.handlers.fetch": "answers when there is data or the time is over",
    "broker.server.handlers.list_offsets": "names the future of an answer that waits for a thread",
    "broker.server.handlers.metadata": "names the future of an answer that waits for a creation",
    "broker.server.handlers.add_partitions_to_txn": "adds to many transactions together; each waits for the log",
    "broker.server.handlers.produce": "answers when the replicas have it or the time is over",
    "broker.server.host_names": "asks DNS in a thread",
    "broker.server.listener": "binds and accepts",
    "broker.server.record_threads": "opens records in threads, some at a time",
    "broker.server.request": "names the future that a handler may return",
    "broker.server.throttling": "measures how long requests take, which quotas count",
    "broker.server.topic_waits": "waits until the metadata has changed",
    "broker.server.large_orders": "gives the loop a turn while a large request is freed",
    "broker.server.large_requests": "decodes one large request after the other",
    "broker.server.turns": "gives the loop a turn between pieces of large work",
    "broker.server.unread_answers": "looks at intervals who does not read",
    "broker.security.zookeeper_access": "reads a tool's file of settings, and the environment",
    "broker.security.sasl.jaas_file": "reads the JAAS file, and Java's options in the environment",
    "broker.security.sasl.login_tokens": "asks token endpoints, and times tokens",
    "broker.zk.access": "names the context of TLS",
    "broker.tls.client_side": "connects to other brokers",
    "broker.tls.context": "makes the SSL contexts, and reads the files of keys",
    "broker.tls.handshakes": "has the threads in which handshakes are computed",
    "broker.tls.listeners": "hands the context to the connections to other brokers",
    "broker.tls.password_encoder": "draws salts",
    "broker.tls.renewal": "shakes hands in memory",
    "broker.tls.updates": "lets one change at a time be made",
    "broker.tls.server_side": "puts TLS between a listener's sockets and their protocols",
    "broker.tls.transport": "is a protocol and a transport",
    "broker.tls.ciphers": "names the versions of TLS by the `ssl` module's numbers",
    "broker.zk.config_watcher": "reads changed settings one after the other",
    "broker.zk.token_watcher": "has the watch wake the task",
    "broker.zk.feature_watcher": "names the event that a watch sets",
    "broker.zk.isr_writer": "writes ISRs in a task, again after a pause",
    "broker.zk.kazoo_access": "connects kazoo by TLS and logs it in",
    "broker.zk.link": "is kazoo, whose threads it hands over to the loop",
    "broker.zk.memory": "answers as the server does: later, and with timers",
    "broker.zk.new_sessions": "tries again in a task what ZooKeeper refuses a new session",
    "broker.zk.own_session": "starts its watch again in a task",
    "broker.zk.registration": "waits until the broker's old registration is gone",
    "broker.zk.session": "waits for the session and for answers",
    "broker.zk.log_dir_news": "writes in a task, and again where ZooKeeper refuses",
    "broker.zk.session_watches": "looks again in a task whenever a watch was called",
    "admin.cluster.asking": "measures its timeouts, and pauses between attempts",
    "admin.cluster.client": "says when a snapshot was taken",
    "admin.cluster.connection": "connects kafka-python within a time, and keeps its log quiet",
    "admin.cluster.probe": "asks all brokers side by side, in threads",
    "admin.cluster.reachability": "opens sockets to find what a client would meet",
    "admin.cluster.other_listeners": "opens sockets to find what listens where no broker answers",
    "admin.cluster.sign_of_life": "opens a socket to find whether a broker answers",
    "admin.configs.znodes": "draws the salt of a password",
    "admin.connector": "runs the commands that start and stop brokers",
    "admin.reassignment.planner": "draws by a seed that the plan names",
    "admin.reassignment.proposal": "draws by a seed that the plan names",
    "admin.settings": "reads the file that names a cluster",
    "admin.transactions.requests": "pauses before it asks a coordinator again",
    "admin.users.requests": "draws the salt of a password",
    "admin.zookeeper.batch": "sorts kazoo's errors",
    "admin.zookeeper.cluster_client": "dates what it writes",
    "admin.zookeeper.ensemble": "is kazoo, within a time",
    "admin.zookeeper.znodes": "is kazoo, as the port of the znodes",
}


def touched(source: str, module: str) -> set[str]:
    """What the module takes of the outside: imported packages, and `open`."""
    opens = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        for node in (ast.walk(ast.parse(source)) if "open(" in source else ())
    )
    imported = {name.partition(".")[0] for name in floors.imports(source, module)}
    return (imported & IMPURE) | ({"open"} if opens else set())


def test_only_shells_touch_the_outside() -> None:
    found = {
        module: touched(path.read_text(), module)
        for path in floors.python_files(floors.ROOT)
        if (module := floors.module_name(path, floors.ROOT)).partition(".")[0] in ROOTS
    }
    outside = {module: what for module, what in found.items() if what}
    assert {m: what for m, what in outside.items() if m not in SHELLS} == {}, "take a port, or say here why not"
    assert SHELLS.keys() - outside.keys() == set(), "these touch nothing any more: take them out of the list"


@pytest.mark.parametrize(
    "planted",
    [
        "import time\n",
        "from asyncio import sleep\n",
        "def f():\n    import threading\n",
        "def f():\n    with open('x') as file:\n        pass\n",
    ],
)
def test_planted_ones_are_found(planted: str) -> None:
    assert touched(planted, "broker.groups.groups")
    assert not touched("from logyard.broker.clock import Clock\nself.disk.open('x')\n", "broker.groups.groups")
