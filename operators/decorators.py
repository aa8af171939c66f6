"""`@task.logyard_consume` and `@task.logyard_produce`: a function that reads, or makes, records.

    @task.logyard_consume(topics=["orders"], group="orders-dag")
    def store(messages): ...                                       # a list of confluent_kafka.Message, batch by batch

    @task.logyard_produce(topic="orders")
    def made(): yield "key", {"value": 1}                          # pairs, or mappings with key, value, headers …

Parameters that have the name of a part of the task's context (`ti`, `params`, …) get it, and `**context` all of it.

There is none for sensors: the triggerer imports a function by its path, and a function in a DAG file has none there.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from logyard.operators.airflow_names import DecoratedOperator, task_decorator_factory
from logyard.operators.consuming import ConsumeFromTopicOperator
from logyard.operators.producing import ProduceToTopicOperator


class DecoratedConsumeOperator(DecoratedOperator, ConsumeFromTopicOperator):
    """ConsumeFromTopicOperator whose function is the decorated one; its first parameter gets each batch.

    The arguments of the call are those of the parameters after it, by position or by name.
    """

    custom_operator_name = "@task.logyard_consume"
    template_fields = (*ConsumeFromTopicOperator.template_fields, "op_args", "op_kwargs")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # Airflow checks that all parameters are given; the batch, which comes later, is the first of them.
        super().__init__(
            python_callable=python_callable,
            op_args=([], *(op_args or ())),
            op_kwargs=op_kwargs or {},
            **kwargs,
        )
        self.op_args = tuple(op_args or ())

    def execute(self, context: Context) -> Any:
        named = with_context(self.python_callable, 1 + len(self.op_args), self.op_kwargs, context)
        self.apply_function_batch = lambda batch: self.python_callable(batch, *self.op_args, **named)
        return ConsumeFromTopicOperator.execute(self, context)


class DecoratedProduceOperator(DecoratedOperator, ProduceToTopicOperator):
    """ProduceToTopicOperator whose records are what the decorated function returns or yields."""

    custom_operator_name = "@task.logyard_produce"
    template_fields = (*ProduceToTopicOperator.template_fields, "op_args", "op_kwargs")

    def execute(self, context: Context) -> Any:
        named = with_context(self.python_callable, len(self.op_args), self.op_kwargs, context)
        self.producer_function = lambda: self.python_callable(*self.op_args, **named)
        return ProduceToTopicOperator.execute(self, context)


def with_context(
    function: Callable[..., Any], positional: int, given: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, Any]:
    """The keyword arguments, with what the function takes of the context, as Airflow's own `@task` does it.

    :param positional: how many parameters get their values by position.
    """
    parameters = inspect.signature(function).parameters
    taken = set(list(parameters)[:positional])
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    wanted = (context.keys() if takes_all else context.keys() & parameters.keys()) - taken
    return {**{name: context[name] for name in wanted}, **given}


def consume_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """`@task.logyard_consume(…)`; the arguments are those of ConsumeFromTopicOperator."""
    return task_decorator_factory(python_callable, decorated_operator_class=DecoratedConsumeOperator, **kwargs)


def produce_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """`@task.logyard_produce(…)`; the arguments are those of ProduceToTopicOperator."""
    return task_decorator_factory(python_callable, decorated_operator_class=DecoratedProduceOperator, **kwargs)
