"""Set and remove the limits of a user, a client, both, or an address."""

from logyard.dags.factories.alter_quotas import alter_quotas_dag

dag = alter_quotas_dag()  # airflow finds it by this name
