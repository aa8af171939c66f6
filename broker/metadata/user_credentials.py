"""The SCRAM credentials of users, as their znodes have them (facts §18.1)."""

from collections.abc import Mapping

from logyard.broker.errors import CorruptData
from logyard.broker.znodes import configs
from logyard.broker.znodes.scram_credentials import DIGESTS, ScramCredential


class UserCredentials:
    """Written by the watcher of /config/changes, read by log-ins. It has no `repr` of its content."""

    def __init__(self) -> None:
        self._scram: dict[str, dict[str, ScramCredential]] = {name: {} for name in DIGESTS}

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism."""
        return self._scram[mechanism].get(user)

    def take(self, entity: str, settings: Mapping[str, str]) -> None:
        """Apply the settings of an entity of `users`; a user without a credential has none any more.

        Raises CorruptData, without the credential, if one cannot be read; the user then has none of that mechanism.
        """
        if entity == configs.DEFAULT or "/" in entity:
            return  # the defaults, and clients of users, have quotas only
        user = configs.desanitize(entity)
        wrong: CorruptData | None = None
        for mechanism, known in self._scram.items():
            known.pop(user, None)
            text = settings.get(mechanism)
            if text is None:
                continue
            try:
                known[user] = ScramCredential.parse(text)
            except CorruptData as error:
                wrong = error
        if wrong is not None:
            raise wrong
