"""The controller: find out what is wrong with it, bring it back, and prove that the cluster is whole."""

from typing import Any

from airflow.sdk import Context

from logyard.admin.ports import Launcher
from logyard.admin.recovery import Expectation, Limits, Recoverer
from logyard.operators.base import ClusterOperator, as_integer, as_truth


class RecoverControllerOperator(ClusterOperator):
    """Diagnose the controller by ZooKeeper and by asking it, treat what is wrong, and wait until all is well.

    Treated are: nobody elected though brokers live, a controller whose process is dead, one that hangs (it is
    fenced by a multi that checks the epoch read at diagnosis), a garbled /controller_epoch, no broker at all.
    Brokers that ought to run and are not registered are started by the launcher. All is well when a controller
    answers, every partition is led, every expected broker is back and every ISR is full.

    It may run at any time: before anybody noticed, after another controller was elected, and when nothing is wrong.
    Returns controller_before, controller_after, epoch_before, epoch_after, restarted, partitions_led,
    under_replicated, seconds, and the finding with the actions taken.

    :param restart_brokers: start brokers that are missing; without it they are only reported. (templated)
    :param epoch_before: an epoch that the controller's has to be above in the end; known to callers that saw the
        cluster before it broke. (templated)
    :param controller_before: who was controller then, for the report. (templated)
    :param probe_timeout_s: seconds a controller has to answer, three times over.
    :param grace_s: seconds that an election or the end of a session is waited for before anything is forced.
    """

    template_fields = ("restart_brokers", "epoch_before", "controller_before", "logyard_conn_id")

    def __init__(
        self,
        *,
        restart_brokers: bool | str = True,
        epoch_before: int | str | None = None,
        controller_before: int | str | None = None,
        probe_timeout_s: float = 5.0,
        grace_s: float = 45.0,
        wait_timeout_s: float = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(wait_timeout_s=wait_timeout_s, **kwargs)
        self.restart_brokers = restart_brokers
        self.epoch_before = epoch_before
        self.controller_before = controller_before
        self.probe_timeout_s = probe_timeout_s
        self.grace_s = grace_s

    def execute(self, context: Context) -> dict[str, Any]:
        hook = self.hook
        launcher: Launcher | None = hook.launcher() if as_truth("restart_brokers", self.restart_brokers) else None
        with hook.ensemble() as ensemble:
            recovery = Recoverer(
                ensemble=ensemble,
                client=hook.get_conn(),
                launcher=launcher,
                pause=hook.pause(),
                say=self.log.info,
                limits=Limits(
                    total_s=self.wait_timeout_s,
                    grace_s=self.grace_s,
                    look_s=self.poll_interval_s,
                    probe_s=self.probe_timeout_s,
                ),
                expectation=self.expectation(),
            ).run()
        self.log.info(
            "controller %d at epoch %d, %d of %d partitions led, in %.1f s",
            recovery.controller_after,
            recovery.epoch_after,
            recovery.health.led,
            recovery.health.partitions,
            recovery.seconds,
        )
        return recovery.as_json()

    def expectation(self) -> Expectation:
        """What the fields and the connection say beforehand."""
        settings = self.hook.settings
        epoch = as_integer("epoch_before", self.epoch_before, -1)
        controller = as_integer("controller_before", self.controller_before, -1)
        return Expectation(
            controller=controller if controller >= 0 else None,
            epoch=epoch if epoch >= 0 else None,
            brokers=settings.expected_brokers(),
            protocol=settings.security_protocol,
        )
