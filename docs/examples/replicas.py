"""Replicas, leaders and brokers: planned, approved, moved, verified."""

from airflow.sdk import DAG

from logyard.operators.approval import ApprovePlanOperator
from logyard.operators.cancellation import CancelReassignmentOperator
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator
from logyard.operators.sensors.cluster import (
    BrokerUpSensor,
    ControllerElectedSensor,
    ReassignmentDoneSensor,
    UnderReplicatedPartitionsSensor,
)
from logyard.operators.verification import VerifyReassignmentOperator

with DAG("example_reassign", schedule=None):
    plan = PlanReassignmentOperator(task_id="plan", topics=["orders"], drain=[3], replication_factor=2)
    approve = ApprovePlanOperator(task_id="approve", subject="Move these replicas?", plan=plan.output, required=False)
    execute = ExecuteReassignmentOperator(task_id="execute", plan=plan.output, throttle=50_000_000)
    done = ReassignmentDoneSensor(task_id="done", plan=plan.output)
    verify = VerifyReassignmentOperator(task_id="verify", plan=plan.output)
    plan >> approve >> execute >> done >> verify

with DAG("example_cancel_reassignment", schedule=None):
    CancelReassignmentOperator(task_id="cancel", dry_run=True)

with DAG("example_decommission_broker", schedule=None):
    DecommissionBrokerOperator(task_id="decommission", brokers=[3], replication_factor=2)

with DAG("example_elect_leaders", schedule=None):
    ElectLeadersOperator(task_id="elect")

with DAG("example_recover_controller", schedule=None):
    RecoverControllerOperator(task_id="recover", dry_run=True)

with DAG("example_wait_for_brokers", schedule=None):
    up = BrokerUpSensor(task_id="up", brokers=[1, 2])
    elected = ControllerElectedSensor(task_id="elected")
    replicated = UnderReplicatedPartitionsSensor(task_id="replicated", timeout=3600, deferrable=True)
    up >> elected >> replicated
