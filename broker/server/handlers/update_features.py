"""UpdateFeatures (57), for administrators: v0 has a flag for downgrades, v1 has upgrade types and validate-only
(KIP-778).

The answers are Kafka's (facts §22); `transaction.version` is the feature that can be finalized, among brokers of ours.
"""

from typing import Any

from logyard.broker.controller.events import FeatureChange, UpdateFeatures, UpgradeKind
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

_KINDS = {kind.value: kind for kind in UpgradeKind}


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    updates = pauses.between(message.feature_updates)
    changes = tuple([_change(update, request.api_version) async for update in updates])
    validate_only = request.api_version >= 1 and bool(message.validate_only)
    outcomes = await services.controller.ask(UpdateFeatures(changes, validate_only))
    return {
        "error_code": 0,
        "error_message": None,
        "results": [
            {"feature": name, "error_code": int(outcome.error), "error_message": outcome.message}
            async for name, outcome in pauses.between(outcomes.items())
        ],
    }


def _change(update: Any, version: int) -> FeatureChange:
    if version == 0:
        kind = UpgradeKind.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeKind.UPGRADE
    else:
        kind = _KINDS.get(update.upgrade_type, UpgradeKind.UNKNOWN)
    return FeatureChange(update.feature, update.max_version_level, kind)


HANDLER = Handler(message=handle)
