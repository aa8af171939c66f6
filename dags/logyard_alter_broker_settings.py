"""Change settings of one broker, or of all brokers, while they run."""

from logyard.dags.factories.alter_broker_settings import alter_broker_settings_dag

dag = alter_broker_settings_dag()  # airflow finds it by this name
