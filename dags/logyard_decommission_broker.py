"""Take brokers out of service: show what would move, have a person approve it, empty them, and stop them if wanted."""

from logyard.dags.factories.decommission_broker import decommission_broker_dag

dag = decommission_broker_dag()  # airflow finds it by this name
