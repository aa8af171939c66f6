"""Take away a user's ACLs, and if asked limits and passwords."""

from logyard.dags.factories.revoke_access import revoke_access_dag

dag = revoke_access_dag()  # airflow finds it by this name
