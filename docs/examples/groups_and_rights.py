"""Groups, transactions, rights, users, quotas, settings of brokers, topics as code, reports."""

from pathlib import Path

from airflow.sdk import DAG

from logyard.operators.access import (
    CreateAclsOperator,
    DeleteAclsOperator,
    DeleteUserOperator,
    SetQuotasOperator,
    SetUserOperator,
)
from logyard.operators.brokers import AlterBrokerSettingsOperator
from logyard.operators.catalog import ApplyTopicsOperator, PlanTopicsOperator
from logyard.operators.groups import DeleteGroupsOperator, ResetOffsetsOperator
from logyard.operators.reports import ChooseCompactionOperator, RetentionReportOperator
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor, OffsetsReachedSensor
from logyard.operators.sensors.transactions import NoHangingTransactionsSensor
from logyard.operators.transactions import AbortHangingTransactionsOperator

HERE = str(Path(__file__).parent)
READ = {"topic": "orders", "principal": "User:orders", "operation": ["Read", "Describe"]}

with DAG("example_reset_offsets", schedule=None):
    ResetOffsetsOperator(task_id="reset", group="nightly", topics=["orders"], to="earliest")

with DAG("example_delete_groups", schedule=None):
    DeleteGroupsOperator(task_id="delete", groups=["left_long_ago"])

with DAG("example_wait_for_offsets", schedule=None):
    written = OffsetsReachedSensor(task_id="written", topic="orders", offsets={"0": 5})
    read = ConsumerLagBelowSensor(task_id="read", group="nightly", max_lag=100)
    written >> read

with DAG("example_hanging_transactions", schedule=None):
    abort = AbortHangingTransactionsOperator(task_id="abort", topics=["orders"], dry_run=True)
    none = NoHangingTransactionsSensor(task_id="none", topics=["orders"])
    abort >> none

with DAG("example_rights", schedule=None):
    # The connection orders_password has the user's password.
    user = SetUserOperator(task_id="user", user="orders", password_conn_id="orders_password")
    grant = CreateAclsOperator(task_id="grant", acls=[READ])
    quota = SetQuotasOperator(task_id="quota", quotas=[{"user": "orders", "producer_byte_rate": 10_485_760}])
    revoke = DeleteAclsOperator(task_id="revoke", acls=[READ])
    gone = DeleteUserOperator(task_id="gone", user="orders")
    user >> grant >> quota >> revoke >> gone

with DAG("example_broker_settings", schedule=None):
    # `default`: of all brokers that have no value of their own; null unsets.
    every = AlterBrokerSettingsOperator(task_id="every", broker="default", settings={"log.retention.ms": 3_600_000})
    one = AlterBrokerSettingsOperator(task_id="one", broker=1, settings={"num.io.threads": 16})
    back = AlterBrokerSettingsOperator(task_id="back", broker="default", settings={"log.retention.ms": None})
    every >> one >> back

with DAG("example_topics_as_code", schedule=None):
    plan = PlanTopicsOperator(task_id="plan", file="topics.yaml", directory=HERE)
    apply = ApplyTopicsOperator(task_id="apply", file="topics.yaml", directory=HERE, plan=plan.output)
    plan >> apply

with DAG("example_reports", schedule=None):
    RetentionReportOperator(task_id="retention", topics=["orders"])
    ChooseCompactionOperator(task_id="choose")
