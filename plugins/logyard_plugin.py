"""Logyard's page for those who copy this folder into Airflow's plugins folder.

Where the package is installed its entry point registers the plugin already, and a second registration is an error to
Airflow: then this file defines nothing.
"""

from importlib.metadata import entry_points

if not any(point.name == "logyard" for point in entry_points(group="airflow.plugins")):
    from logyard.plugins.logyard_ui.plugin import LogyardPlugin  # noqa: F401
