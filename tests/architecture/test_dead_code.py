"""Nothing is defined that nobody uses: vulture over the product alone, then over the product with its tests.

What only tests use is dead too, unless it is a twin of a port, or users and frameworks call it. vulture goes by names,
so an exception is a pattern of names with its reason; one that is no longer needed has to go.
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from vulture import Vulture

from logyard.broker.errors import ErrorCode
from tests.support import floors

# Why something is there that nothing else of the product names: the reason, and patterns of names.
PRODUCT: dict[str, Sequence[str]] = {
    "a table of Kafka's, whole": ("IBP_*", "LEVEL_*"),
    "every setting of Kafka's is read, acted on or not": (
        "compression_lz4_level",
        "local_retention_*",
        "message_format_version",
        "remote_storage_enable",
    ),
    "metrics are read by `asdict`": (
        "*_expands",
        "*_shrinks",
        "failed_*",
        "replication_bytes_*",
        "messages_in",
        "cold_reads",
        "succeeded",
    ),
    "counted for tests, which see nothing else of it": (
        "meter_count",
        "sample_count",
        "evictions",
        "expirations",
        "syncs",
        "rewrites",
    ),
    "asyncio calls it, by these names": ("sizehint", "eof_received"),
    "PyIceberg calls or reads it": (
        "spec_id",
        "_deleted_data_files",
        "_deleted_entries",
        "_existing_manifests",
        "_process_manifests",
    ),
    "the library gssapi reads it": ("__DEFER_STEP_ERRORS__",),
    "uvicorn reads it": ("capture_signals", "should_exit"),
    "what a Protocol asks of a function": ("__call__",),
    "Python's import system calls it": ("__path__", "create_module"),
    "Python's enumerations call it": ("_missing_",),
    "numba asks a function for it": ("_numba_type_",),
    "kazoo calls or reads it": (
        "dispatch_callback",
        "sasl_options",
        "_authenticate_with_sasl",
    ),
    "kafka-python calls or reads it": ("maybe_raise_auth_failure", "auth_message", "_scram_client"),
    "Airflow calls or reads it": (
        "conn_name_attr",
        "external_views",
        "fastapi_apps",
        "get_airflow_commands",
        "external_views",
        "fastapi_root_middlewares",
        "get_link",
        "async_notify",
        "consume_task",
        "convert_asset_to_openlineage",
        "get_openlineage_facets_on_complete",
        "get_provider_info",
        "queue_matches",
        "hook_name",
        "LogyardPlugin",
        "_java_class",
        "on_kill",
        "LogyardMessageQueueProvider",
        "operator_extra_links",
        "produce_task",
        "react_apps",
        "template_fields_renderers",
        "test_connection",
        "custom_operator_name",
        "ti_key",
        "ui_color",
        "trigger_class",
        "trigger_kwargs",
        "validate_params",
        "xcom_key",
    ),
    "Spark calls or reads it": (
        "addInPlace",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "prepareForTriggerAvailableNow",
        "reportLatestOffset",
        "batchId",
        "streamReader",
        "streamWriter",
        "zero",
    ),
    "the data source imports it by its name, where PySpark has what it needs": (
        "LogyardStreamReader",
        "LogyardStreamWriter",
        "LogyardWriter",
    ),
    "FastAPI calls it": ("invalid",),
    "typer has it said by a flag": ("entity_default",),
    "users import it into DAGs and policies": (
        "*Sensor",
        "CommitOffsetsOperator",
        "PolicyViolation",
        "TopicsChangedEvent",
        "TopicNotifier",
        "topic_asset",
    ),
    "a field of a JSON document": ("bytes_once", "span_s", "started_at"),
    "a twin of a port, or a step of one that the world makes by itself": (
        "Memory*",
        "ManualClock",
        "set_wall",
        "InProcess",
        "heal",
        "lose_replies",
        "reconnect",
        "crash",
        "sessions",
    ),
    "tests do or wait for what otherwise time brings": (
        "connection_count",
        "wait_gone",
    ),
    "the platform's other users: tests start runs by it": ("run_dag", "wait_healthy"),
    "said in a log or an answer": ("client_software", "duplicate"),
}
# What pytest, asyncio, http.server and others call or read in tests, by their names.
TESTS: dict[str, Sequence[str]] = {
    "pytest finds it": ("test_*", "pytest*"),
    "a case that its decorator takes": ("_",),
    "Python reads it to trace bytecodes": ("f_trace_lines", "f_trace_opcodes"),
    "asyncio, greenlet and the libraries' servers read or call it": (
        "_log_destroy_pending",
        "_repr",
        "_source_traceback",
        "_when",
        "close_connection",
        "daemon_threads",
        "do_DELETE",
        "do_GET",
        "do_POST",
        "do_PUT",
        "get_map",
        "gr_context",
        "handle_one_request",
        "ignore_errors",
        "log_message",
        "protocol_version",
        "should_exit",
        "sizehint",
    ),
    "Airflow reads it": ("dag_version", "stats_tags", "xcom_pull"),
    "Spark calls it": ("streamWriter",),
    "structlog reads it": ("exception_formatter",),
    "a command of a transcript or a step of a history: `do_` and its word": ("do_[a-z]*",),
}


def unused(vulture: Vulture) -> list[tuple[str, str]]:
    """(path:line, name) of everything that vulture finds no use of; Kafka's error codes are a table and stand whole."""
    return [
        (f"{item.filename.relative_to(floors.ROOT)}:{item.first_lineno}: {item.typ}", item.name)
        for item in vulture.get_unused_code(min_confidence=60)
        if item.name not in ErrorCode.__members__
    ]


def unexplained(found: Iterable[tuple[str, str]], allowed: Mapping[str, Sequence[str]]) -> list[str]:
    patterns = [pattern for names in allowed.values() for pattern in names]
    return [f"{where} {name}" for where, name in found if not any(fnmatchcase(name, p) for p in patterns)]


def unneeded(found: Iterable[tuple[str, str]], allowed: Mapping[str, Sequence[str]]) -> list[str]:
    names = {name for _, name in found}
    return [p for some in allowed.values() for p in some if not any(fnmatchcase(name, p) for name in names)]


def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=floors.ROOT, capture_output=True, text=True, check=True)
    return tuple(listed.stdout.split())


def test_all_that_is_defined_is_used() -> None:
    """One test, because the tests' names are looked for in what was scanned of the product."""
    vulture = Vulture(ignore_decorators=["@*.fixture", "@fixture", "@*.command", "@*.callback"])
    # Examples use what readers' DAGs would use: that alone keeps nothing.
    apart = ("tests/", "docs/examples/")
    vulture.scavenge([str(floors.ROOT / path) for path in tracked() if not path.startswith(apart)])
    product = unused(vulture)
    assert unexplained(product, PRODUCT) == []
    assert unneeded(product, PRODUCT) == [], "these exceptions are no longer needed"
    vulture.scavenge([str(floors.ROOT / path) for path in tracked() if path.startswith("tests/")])
    tests = [item for item in unused(vulture) if item[0].startswith("tests/")]
    assert unexplained(tests, TESTS) == []
    assert unneeded(tests, TESTS) == [], "these exceptions are no longer needed"
