"""Logyard as an Airflow provider: the content of a provider.yaml, returned by the package's entry point."""

from importlib.util import find_spec
from typing import Any

_NAME = "Logyard"
_OPERATORS = "logyard.operators"


def _text(label: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], **schema}}


def _secret(label: str, description: str) -> dict[str, Any]:
    """A field that the form shows as dots."""
    return _text(label, description, format="password")


_CONN_FIELDS: dict[str, Any] = {
    "zookeeper": _text(
        "ZooKeeper",
        "host:port[,host:port…][/chroot] of the cluster's ensemble. Only the recovery of controllers needs it.",
    ),
    "zookeeper_config_file": _text(
        "ZooKeeper's settings",
        "For a secured ZooKeeper: a file on the workers with zookeeper.ssl.* and logyard.jaas.config.file, as for "
        "--zk-tls-config-file. Empty: the worker's LOGYARD_ZK_TLS_CONFIG_FILE and KAFKA_OPTS.",
    ),
    "security_protocol": _text(
        "Security protocol",
        "The security protocol of the brokers' listeners.",
        enum=["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        default="PLAINTEXT",
    ),
    "sasl_mechanism": _text(
        "SASL mechanism",
        "For SASL. PLAIN and SCRAM use the connection's login and password, OAUTHBEARER the fields below, GSSAPI the "
        "worker's Kerberos ticket.",
        enum=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"],
    ),
    "delegation_token": {
        "label": "Delegation token",
        "description": "Whether login and password are a delegation token's id and HMAC (by SCRAM).",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
    "ssl_cafile": _text(
        "CA file", "PEM or PKCS12 file of the authorities that signed the brokers' certificates; empty: the system's."
    ),
    "ssl_ca": _text("CA certificates", "The same as PEM text, if workers have no such file.", format="multiline"),
    "ssl_ca_password": _secret("CA file password", "Of a PKCS12 file."),
    "ssl_certfile": _text(
        "Certificate file", "PEM file of the client's certificate, or PKCS12 file with its key, if brokers ask for one."
    ),
    "ssl_keyfile": _text("Key file", "PEM file of the client's key; empty: it is in the certificate file."),
    "ssl_certificate": _text("Certificate", "The client's certificate as PEM text.", format="multiline"),
    "ssl_key": _secret("Key", "The client's key as PEM text."),
    "ssl_password": _secret("Key password", "Password of the key, or of the PKCS12 file."),
    "ssl_check_hostname": {
        "label": "Check host names",
        "description": "Whether a broker's certificate must name its host.",
        "schema": {"type": ["boolean", "null"], "default": True},
    },
    "oauth_token_url": _text("OAuth token endpoint", "URL that gives tokens by client credentials."),
    "oauth_client_id": _text("OAuth client id", "Who asks for tokens."),
    "oauth_client_secret": _secret("OAuth client secret", "Proves that to the token endpoint."),
    "oauth_scope": _text("OAuth scope", "What the token is asked for, if the endpoint needs it."),
    "oauth_cafile": _text("OAuth CA file", "PEM file of the token endpoint's authorities; empty: the system's."),
    "oauth_token": _secret("OAuth token", "A token itself, instead of an endpoint."),
    "kerberos_service": _text("Kerberos service", "The brokers' service name for GSSAPI.", default="kafka"),
    "http_username": _text(
        "HTTP user",
        "Who logs in at the brokers' HTTP side, for Spark jobs that lease segments, if it is secured and the user is "
        "another than that of the SASL mechanism (GSSAPI, for example, is not served there).",
    ),
    "http_password": _secret("HTTP password", "Of the HTTP user."),
    "http_cafile": _text(
        "HTTP CA file", "PEM file of the authorities of the HTTP side; empty: those of the brokers' listeners."
    ),
    "http_tokens": _secret(
        "HTTP tokens",
        'Of an HTTP side without log-ins, for Spark jobs that lease segments: {"1": "token", …}, unless the cluster '
        "file leads to them.",
    ),
    "request_timeout_s": {
        "label": "Request timeout",
        "description": "Seconds that one request may take.",
        "schema": {"type": ["number", "null"], "default": 10},
    },
    "total_timeout_s": {
        "label": "Total timeout",
        "description": "Seconds for which a request is repeated while no broker or controller answers.",
        "schema": {"type": ["number", "null"], "default": 60},
    },
    "throttle": {
        "label": "Replication throttle",
        "description": "Bytes per second on each broker while replicas move, for tasks that name none; empty: none.",
        "schema": {"type": ["number", "null"]},
    },
    "disk_capacities": _text(
        "Disk capacities",
        'Bytes of the brokers\' disks: one number, or {"1": 2000000000000, …} for all brokers. Then no plan fills a '
        "disk above its limit, and the filled share of the disks is balanced.",
    ),
    "cluster_file": _text(
        "Cluster file",
        "The cluster.json of `logyard cluster start`: which brokers should run, and where Spark gets their leases. For "
        "one machine only.",
    ),
    "broker_ids": {
        "label": "Broker ids",
        "description": (
            'Which brokers should run, if there is no cluster file: ids, or "1@broker-1:9092", so that a missing '
            "broker is looked for, and started, at that address."
        ),
        "schema": {"type": ["array", "null"]},
    },
    "schema_registry_url": _text(
        "Schema registry",
        "Its address, such as https://registry:8081, with the path below which its API is, if it has one. The page "
        "and tasks then decode what Avro, Protobuf and JSON Schema serializers wrote.",
    ),
    "schema_registry_username": _text("Schema registry user", "Who asks it for schemas, by a password (Basic)."),
    "schema_registry_password": _secret(
        "Schema registry password", "Of that user; it is only sent to an address that begins with https."
    ),
    "schema_registry_cafile": _text(
        "Schema registry CA file", "PEM file of the authorities of its certificate; empty: the system's."
    ),
    "asset_server": _text(
        "Server in asset URIs",
        "host:port that names this cluster in kafka://host:port/topic, the same in every connection to it; empty: the "
        "first bootstrap server.",
    ),
    "broker_start_command": {
        "label": "Broker start command",
        "description": (
            "A list of arguments that starts a broker, run without a shell; {broker_id}, {host} and {rack} are filled "
            "in. Used only where [logyard] allow_connection_launcher is set."
        ),
        "schema": {"type": ["array", "null"]},
    },
    "broker_stop_command": {
        "label": "Broker stop command",
        "description": "The same, to end the process of a broker that hangs before it is started again.",
        "schema": {"type": ["array", "null"]},
    },
    "broker_status_command": {
        "label": "Broker status command",
        "description": (
            "The same, to ask a broker's own host about it. It prints answers, silent, starting, runs or gone, or a "
            "word of `systemctl is-active`."
        ),
        "schema": {"type": ["array", "null"]},
    },
}


def _option(description: str, kind: str, default: str, example: str | None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }


# The options of the section [logyard].
_OPTIONS: dict[str, Any] = {
    "defer_after_s": _option("Seconds for which a deferrable operator polls before it defers.", "float", "5", "0"),
    "broker_start_command": _option(
        "A JSON list of arguments that starts a broker; {broker_id}, {host}, {rack} are filled in.",
        "string",
        "",
        '["ssh", "{host}", "systemctl", "start", "kafka"]',
    ),
    "broker_stop_command": _option(
        "The same, to end the process of a broker that hangs before it is started again.",
        "string",
        "",
        '["ssh", "{host}", "systemctl", "kill", "-s", "KILL", "kafka"]',
    ),
    "broker_status_command": _option(
        "The same to ask a broker's own host about it. It prints answers, silent, starting, runs or gone, "
        "or a word of `systemctl is-active`: recovery does not rely on what one worker sees alone.",
        "string",
        "",
        '["ssh", "{host}", "systemctl", "is-active", "kafka"]',
    ),
    "spark_settings": _option(
        "A JSON object of settings for every Spark job; a task's own settings take precedence.",
        "string",
        "",
        '{"spark.driver.host": "airflow.example", "spark.executor.memory": "4g"}',
    ),
    "spark_jobs_on_workers": _option(
        "The folder of logyard/spark_jobs on the workers of a standalone Spark in cluster deploy mode, where it is "
        "another than on Airflow's workers.",
        "string",
        "",
        "/opt/logyard/lib/python3.12/site-packages/logyard/spark_jobs",
    ),
    "export_timeout_minutes": _option(
        "Minutes after which a run of the DAG export_segments is ended; what it has committed stays.",
        "float",
        "60",
        "600",
    ),
    "topics_directory": _option(
        "The folder of the files that the DAG topics_as_code reads; empty: the DAG file's folder.",
        "string",
        "",
        "/opt/airflow/topics",
    ),
    "catalog_connections": _option(
        "The connections of Iceberg catalogs among which the form of the DAG maintain_table chooses, separated by "
        "commas; the DAG's own is always among them. Empty: any connection of a catalog.",
        "string",
        "",
        "lake_catalog",
    ),
    "dag_connections": _option(
        "The connections among which the forms of the packaged DAGs choose, separated by commas: one set of DAGs then "
        "serves all of them, and who may start a DAG may do so on each. It holds for DAGs whose own connection is "
        "named. Empty: each DAG has one connection.",
        "string",
        "",
        "logyard_default,kafka_west",
    ),
    "transactional_id_prefix": _option(
        "What the transactional ids of tasks begin with; behind it are the ids of DAG, task and run. Two Airflows with "
        "the same DAGs on one cluster need two, or their tasks end each other's transactions.",
        "string",
        "logyard-",
        "logyard-west-",
    ),
    "page_connections": _option(
        "The connections that every user of the page may see, separated by commas; * means all.",
        "string",
        "*",
        "kafka_west,kafka_east",
    ),
    "page_records": _option(
        "The connections whose records every user of the page may look at, separated by commas; * means all. Empty: "
        "only users who may read the connection in Airflow.",
        "string",
        "",
        "kafka_test",
    ),
    "page_record_masks": _option(
        "A JSON list of what the page hides of records: topics (a regular expression), fields, and the roles that see "
        "them all the same. Search finds only what is shown.",
        "string",
        "",
        '[{"topics": "payments.*", "fields": ["card.number", "email"], "unless": ["Admin"]}]',
    ),
    "docs_url": _option(
        "Where you have published Logyard's docs, as http:// or https://: Airflow's menu Docs and the documentation of "
        "the DAGs link to it.",
        "string",
        "",
        "https://docs.example.com/logyard/",
    ),
    "page_history": _option(
        "Whether API servers keep a history of each cluster for the page's plots, in the table logyard_history of "
        "Airflow's database.",
        "boolean",
        "True",
        None,
    ),
    "allow_connection_launcher": _option(
        "Whether a connection's commands may run on the workers.",
        "boolean",
        "False",
        None,
    ),
}


def _modules(below: str, *names: str) -> list[dict[str, Any]]:
    """An entry for modules of `logyard.operators`."""
    return [{"integration-name": _NAME, "python-modules": [f"{_OPERATORS}{below}.{name}" for name in names]}]


def _asset_uris() -> list[dict[str, Any]]:
    """Topics as assets. Airflow's own Kafka provider, where it is installed, keeps the scheme: with two handlers the
    later provider's would replace the other, and URIs that DAGs have already would change."""
    if _has("airflow.providers.apache.kafka"):
        return []
    module = f"{_OPERATORS}.assets"
    return [
        {
            "schemes": ["kafka"],
            "handler": f"{module}.sanitize_uri",
            "factory": f"{module}.create_asset",
            "to_openlineage_converter": f"{module}.convert_asset_to_openlineage",
        }
    ]


def _queues() -> list[str]:
    """For `MessageQueueTrigger(scheme="logyard")`, where its provider is installed."""
    return [f"{_OPERATORS}.queues.LogyardMessageQueueProvider"] if _has("airflow.providers.common.messaging") else []


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def get_provider_info() -> dict[str, Any]:
    """The provider's description, in the schema of Airflow's provider.yaml."""
    operators = (
        *("topics", "reassignment", "verification", "cancellation", "decommission", "groups", "approval", "catalog"),
        *(
            "reports",
            "leadership",
            "controller",
            "spark",
            "table_maintenance",
            "transactions",
            "access",
            "brokers",
            "producing",
            "consuming",
            "copying",
        ),
    )
    return {
        "package-name": "logyard",
        "name": _NAME,
        "description": "Operate partitioned logs (Logyard and Apache Kafka clusters) from Airflow.",
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://kafka.apache.org", "tags": ["service"]}
        ],
        "operators": _modules("", *operators),
        "sensors": _modules(".sensors", "cluster", "offsets", "records", "transactions"),
        "hooks": _modules(".hooks", "cluster", "records"),
        "triggers": _modules(".triggers", "cluster", "offsets", "recovery", "events", "records", "arrivals"),
        "connection-types": [
            {
                "connection-type": "logyard",
                "hook-class-name": f"{_OPERATORS}.hooks.cluster.ClusterHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {"host": "Bootstrap servers", "login": "SASL user", "password": "SASL password"},
                    "placeholders": {"host": "broker-1:9092,broker-2:9092"},
                },
                "conn-fields": _CONN_FIELDS,
            }
        ],
        "asset-uris": _asset_uris(),
        "notifications": [f"{_OPERATORS}.notifier.TopicNotifier"],
        "task-decorators": [
            {"name": "logyard_consume", "class-name": f"{_OPERATORS}.decorators.consume_task"},
            {"name": "logyard_produce", "class-name": f"{_OPERATORS}.decorators.produce_task"},
        ],
        "cli": ["logyard.cli.airflow_command.get_airflow_commands"],
        "queues": _queues(),
        "extra-links": [f"{_OPERATORS}.links.ClusterPageLink"],
        "config": {"logyard": {"description": "How Logyard's operators work.", "options": _OPTIONS}},
    }
