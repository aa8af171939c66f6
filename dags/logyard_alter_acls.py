"""Add and remove ACLs, each as it is given."""

from logyard.dags.factories.alter_acls import alter_acls_dag

dag = alter_acls_dag()  # airflow finds it by this name
