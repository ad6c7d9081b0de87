"""The SCRAM credentials of all users, as a cache of ``/config/users`` in the znode tree.

The znode of a user has Kafka's JSON: ``{"version":1,"config":{"SCRAM-SHA-256":"salt=...,stored_key=...,..."}}``. Its
name is the user's name, percent-encoded as Kafka encodes it. The same znode may have client quotas; they stay as they
are when credentials change. A broker writes to the tree first and to the cache then. The other brokers of a cluster
learn by a notification (``cluster/config_changes.py``) that the user has changed.

Every broker has this cache, and most have no users. So the modules of SCRAM are imported with the first user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.coordination import retried_changes
from headrace.coordination.interface import BadVersionError, Coordination, NodeExistsError, NoNodeError
from headrace.coordination.paths import CONFIG_CHANGE_PREFIX, DEFAULT_ENTITY, USER_CONFIGS, config_path
from headrace.coordination.znodes import ConfigChange, EntityConfig
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

if TYPE_CHECKING:
    from headrace.security.sasl.scram import ScramCredential
    from headrace.security.sasl.scram_server import CredentialShape, ScramAccount

logger = getLogger(__name__)

#: Changes the settings of a user. May raise KafkaError; then nothing is written.
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class ScramUsers:
    def __init__(self) -> None:
        #: The credentials by mechanism and user.
        self._by_mechanism: dict[str, dict[str, ScramCredential]] = {SCRAM_SHA_256: {}, SCRAM_SHA_512: {}}
        self._shapes: dict[str, Sequence[CredentialShape]] = {}

    def __iter__(self) -> Iterator[str]:
        """All users with a credential, sorted."""
        return iter(sorted({name for credentials in self._by_mechanism.values() for name in credentials}))

    def __contains__(self, name: str) -> bool:
        return any(name in credentials for credentials in self._by_mechanism.values())

    def of(self, name: str) -> dict[str, ScramCredential]:
        """The credentials of a user by mechanism; empty if there are none."""
        return {
            mechanism: credentials[name] for mechanism, credentials in self._by_mechanism.items() if name in credentials
        }

    def account_of(self, mechanism: str, name: str) -> ScramAccount | None:
        from headrace.security.sasl.scram_server import ScramAccount

        credential = self._by_mechanism[mechanism].get(name)
        return None if credential is None else ScramAccount(credential, name)

    def shapes_of(self, mechanism: str) -> Sequence[CredentialShape]:
        """How the credentials of a mechanism look, each shape once."""
        shapes = self._shapes.get(mechanism)
        if shapes is None:
            from headrace.security.sasl.scram_server import shape_of

            shapes = sorted({shape_of(credential) for credential in self._by_mechanism[mechanism].values()})
            self._shapes[mechanism] = shapes
        return shapes

    # -- changes

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Sets the settings of a user, given the user's name in the tree."""
        if entity == DEFAULT_ENTITY or "/" in entity:
            return  # quotas of all users, or of a client of a user
        from headrace.security.sasl.scram import ScramCredential

        name = user_of(entity)
        self._shapes.clear()
        for mechanism, credentials in self._by_mechanism.items():
            credentials.pop(name, None)
            if mechanism in configs:
                try:
                    credentials[name] = ScramCredential.from_text(configs[mechanism])
                except ValueError as error:
                    logger.error("the %s credential of user %r is ignored: %s", mechanism, name, error)

    def keep_only(self, entities: Sequence[str]) -> None:
        """Forgets users that have no znode any more."""
        for name in {*self} - {user_of(entity) for entity in entities}:
            self.put(entity_of(name), {})

    async def load(self, coordination: Coordination) -> None:
        """Reads all users. Only a broker that is not in a cluster calls it."""
        for entity in await coordination.children(USER_CONFIGS):
            data, _ = await coordination.get(config_path("users", entity))
            self.put(entity, EntityConfig.from_json(data).config if data else {})


async def change_user(coordination: Coordination, entity: str, change: Change) -> Mapping[str, str]:
    """Changes the settings of a user in the tree, and returns them. Concurrent changes of one user are not lost."""
    path = config_path("users", entity)
    while True:
        try:
            data, stat = await coordination.get(path)
        except NoNodeError:
            configs = change({})
            try:
                await retried_changes.create_persistent(
                    coordination, path, EntityConfig(configs).to_json(), make_parents=True
                )
            except NodeExistsError:
                continue
            return configs
        configs = change(EntityConfig.from_json(data).config if data else {})
        try:
            await retried_changes.set_data(coordination, path, EntityConfig(configs).to_json(), version=stat.version)
        except (BadVersionError, NoNodeError):
            continue
        return configs


async def announce_user(coordination: Coordination, entity: str) -> None:
    """Tells all brokers of a cluster that the settings of a user have changed."""
    change = ConfigChange(f"users/{entity}")
    await retried_changes.create_at_least_once(coordination, CONFIG_CHANGE_PREFIX, change.to_json())


def entity_of(name: str) -> str:
    """Returns a user's name as Kafka writes it in the tree."""
    from headrace.security.sanitizer import sanitize  # urllib takes long to import

    return sanitize(name)


def user_of(entity: str) -> str:
    """Returns the name of a user, given its name in the tree."""
    from headrace.security.sanitizer import desanitize

    return desanitize(entity)
