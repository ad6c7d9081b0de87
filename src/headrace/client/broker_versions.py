"""Chooses the version of each API that a client uses, from the versions that a broker supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from headrace.client.errors import UnsupportedByBroker
from headrace.protocol.api import Api, versions_of
from headrace.protocol.wire.client_codec import decode_response

#: Brokers since Kafka 2.4 support it. An older broker answers in version 0 with an error (KIP-511).
API_VERSIONS_VERSION = 3
#: What a client says about itself in ApiVersions.
SOFTWARE = {"client_software_name": "headrace", "client_software_version": "0.1.0"}

#: The lowest and highest version that a broker supports, by API key.
Versions = Mapping[int, tuple[int, int]]


class BrokerApis(NamedTuple):
    """The answer of a broker to ApiVersions."""

    address: str
    versions: Versions = {}  # noqa: RUF012  a tuple's default is not a class attribute
    #: The finalized features of the cluster: name and level (KIP-584).
    features: Mapping[str, int] = {}

    def read(self, version: int, frame: bytes) -> Self:
        """Returns what an answer to ApiVersions says.

        :raises BadResponse: if it is none.
        """
        answer: Any = decode_response(Api.API_VERSIONS, version, frame)
        features = getattr(answer, "finalized_features", ())
        return self._replace(
            versions={int(key.api_key): (int(key.min_version), int(key.max_version)) for key in answer.api_keys},
            features={feature.name: int(feature.max_version_level) for feature in features},
        )

    def supports(self, api: Api, version: int) -> bool:
        """Whether both sides support a version of an API."""
        lowest, highest = self.versions.get(api, (0, -1))
        return lowest <= version <= highest and version in versions_of(api)

    def version_of(self, api: Api, most: int | None) -> int:
        """Returns the highest version that both sides support, but at most ``most``.

        :raises UnsupportedByBroker: if there is no such version.
        """
        ours = versions_of(api)
        lowest, highest = self.versions.get(api, (0, -1))
        version = min(highest, ours[-1]) if most is None else min(highest, ours[-1], most)
        if version < max(lowest, ours[0]):
            theirs = f"supports v{lowest} to v{highest}" if highest >= 0 else "does not support it"
            wanted = f"v{ours[0]} to v{ours[-1] if most is None else most}"
            raise UnsupportedByBroker(message=f"{api.label} is needed in {wanted}, but {self.address} {theirs}")
        return version
