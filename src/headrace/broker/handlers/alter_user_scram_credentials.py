"""AlterUserScramCredentials (key 51): sets and deletes the SCRAM credentials of users.

Speaks v0. The client sends the salted password; the broker stores what follows from it. Errors are per user, and a user
with an error keeps all credentials as they were: UNACCEPTABLE_CREDENTIAL for no name, no salt, or iterations outside of
4096 to 16384; UNSUPPORTED_SASL_MECHANISM for an unknown mechanism; DUPLICATE_RESOURCE for a user that the request names
twice, even with two mechanisms; RESOURCE_NOT_FOUND for a deletion of what is not there. Any broker writes to the tree,
not only the controller. The client needs ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import (
    ClusterAuthorizationFailed,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    code_for_errors,
)
from headrace.security.acls import AclOperation
from headrace.security.sasl.scram import MAX_ITERATIONS, MECHANISM_IDS, MIN_ITERATIONS, credential_of

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.services import ConfigStore

_MECHANISMS = {number: name for name, number in MECHANISM_IDS.items()}


async def handle(request: Request, authorizer: Authorizer, config_store: ConfigStore) -> Reply:
    by_user: dict[str, list[Any]] = {}
    for wanted in (*request.body.deletions, *request.body.upsertions):
        by_user.setdefault(wanted.name, []).append(wanted)
    is_allowed = is_allowed_on_cluster(authorizer, request.connection, AclOperation.ALTER)
    return {"results": [await _alter(config_store, name, by_user[name], is_allowed=is_allowed) for name in by_user]}


async def _alter(store: ConfigStore, name: str, wanted: list[Any], *, is_allowed: bool) -> dict[str, Any]:
    with code_for_errors(user=name) as answer:
        if not is_allowed:
            raise ClusterAuthorizationFailed("the client needs ALTER on the cluster")
        mechanism, credential = _change(name, wanted)
        await store.change_user_configs(name, lambda configs: _changed(configs, mechanism, credential))
    return answer


def _change(name: str, wanted: list[Any]) -> tuple[str, str | None]:
    """Returns the mechanism and the new credential of a user; None deletes the credential.

    :raises KafkaError: if the request is not valid.
    """
    first, *more = wanted
    if not name:
        raise UnacceptableCredential("Username must not be empty")
    mechanism = _MECHANISMS.get(first.mechanism)
    if mechanism is None:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if more:
        raise DuplicateResource("A user credential cannot be altered twice in the same request")
    return mechanism, _credential(mechanism, first) if hasattr(first, "salt") else None


def _credential(mechanism: str, wanted: Any) -> str:
    if wanted.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if wanted.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    if not wanted.salt or not wanted.salted_password:
        raise UnacceptableCredential("Salt and salted password must not be empty")
    return credential_of(mechanism, wanted.salted_password, wanted.salt, wanted.iterations).to_text()


def _changed(configs: Mapping[str, str], mechanism: str, credential: str | None) -> Mapping[str, str]:
    if credential is not None:
        return {**configs, mechanism: credential}
    if mechanism not in configs:
        raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    return {name: value for name, value in configs.items() if name != mechanism}
