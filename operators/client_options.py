"""librdkafka's options of a task, whose secrets are in no rendered field and no log."""

from collections.abc import Iterable, Mapping
from typing import Any

from logyard.admin.configs.secrets import secret_names
from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import mask_secret
from logyard.operators.fields import as_mapping

_PEM = "ssl.key.pem"  # a key whose name does not say, to Airflow, that it is secret


class TakesClientOptions:
    """An operator or sensor with the templated field `client_options`, a mapping or its JSON text.

    Airflow masks secrets of a mapping by their names, but none within a text: a text becomes its mapping as soon as it
    is rendered, before Airflow keeps it. (Mapped tasks are rendered by this method too.)
    """

    client_options: Mapping[str, Any] | str | None

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], *args: Any, **kwargs: Any
    ) -> None:
        render: Any = super()._do_render_template_fields  # type: ignore[misc]  # of Airflow's base
        render(parent, template_fields, *args, **kwargs)
        if parent is not self:
            return  # an object within a field, with templates of its own
        try:
            found = self.options()
        except BadSettings:
            mask_secret(str(self.client_options))  # nobody can tell what of it is secret
            return
        if isinstance(self.client_options, str):
            self.client_options = found
        for name in (*secret_names(found), *({_PEM} & found.keys())):
            mask_secret(found[name])

    def options(self) -> dict[str, Any]:
        """The mapping. Raises BadSettings, which does not say the value: it may be a password."""
        try:
            return as_mapping("client_options", self.client_options)
        except BadSettings:
            raise BadSettings("client_options: expected a JSON object, or a mapping") from None
