"""Take brokers out of service: plan the moves, let a person approve them, empty the brokers, stop them if asked."""

from logyard.dags.factories.decommission_broker import decommission_broker_dag

dag = decommission_broker_dag()  # airflow finds it by this name
