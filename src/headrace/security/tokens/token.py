"""A delegation token, and its form in the znode tree.

A user makes a token, and gives it to processes that act for the user, so that they need no password. A token has an id,
which is public, and a secret, which is the HMAC of the id::

    HMAC = HMAC-SHA-512(key = delegation.token.secret.key, message = token id)

A client logs in by SCRAM with the id as its name and the HMAC in base64 as its password. The tree holds no secret of a
token: every broker computes the HMAC from the key of its settings. So a reader of the tree cannot log in.

The znode ``/delegation_token/tokens/ID`` has Kafka's JSON. Principals are sanitized. ``tokenRequester`` exists from
version 3 on (KIP-373); before, the requester is the owner::

    {"version": 3, "owner": "User%3Aalice", "tokenRequester": "User%3Aalice", "renewers": ["User%3Abob"],
     "issueTimestamp": 1700000000000, "maxTimestamp": 1700604800000, "expiryTimestamp": 1700086400000, "tokenId": "..."}

A change adds ``/delegation_token/token_changes/token_change_N``, whose content is the id.
"""

from __future__ import annotations

import hmac
import json
import secrets
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headrace.security.principal import Principal
from headrace.security.sanitizer import desanitize, sanitize

ROOT = "/delegation_token"
TOKENS = f"{ROOT}/tokens"
CHANGES = f"{ROOT}/token_changes"
CHANGE_NAME = "token_change_"
#: The znodes that exist before the first token, parents first.
PERSISTENT_PATHS = (ROOT, CHANGES, TOKENS)
#: ZooKeeper accepts a little more.
MAX_ZNODE_BYTES = 1_000_000

_VERSION = 3
_MAX_ID_LENGTH = 256


class MalformedTokenError(ValueError):
    """The content of a znode is not a token."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The data that the cluster stores for a token. The HMAC is not among them."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Whether somebody owns, has requested or may renew the token."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_change(self, principal: Principal) -> bool:
        """Whether somebody may renew the token, or let it expire."""
        return principal == self.owner or principal in self.renewers

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "version": _VERSION,
                "owner": sanitize(str(self.owner)),
                "tokenRequester": sanitize(str(self.requester)),
                "renewers": [sanitize(str(renewer)) for renewer in self.renewers],
                "issueTimestamp": self.issue_ms,
                "maxTimestamp": self.max_ms,
                "expiryTimestamp": self.expiry_ms,
                "tokenId": self.token_id,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, content: bytes) -> DelegationToken:
        """
        :raises MalformedTokenError: if the content is not a token.
        """
        try:
            value = json.loads(content)
            version = _number(value, "version")
            if not 1 <= version <= _VERSION:
                raise MalformedTokenError(f"the version {version} is unknown")
            owner = _principal(value["owner"])
            return cls(
                token_id=_id(value["tokenId"]),
                owner=owner,
                requester=_principal(value["tokenRequester"]) if version >= _VERSION else owner,
                renewers=tuple(_principal(renewer) for renewer in cast(list[object], value["renewers"])),
                issue_ms=_number(value, "issueTimestamp"),
                max_ms=_number(value, "maxTimestamp"),
                expiry_ms=_number(value, "expiryTimestamp"),
            )
        except MalformedTokenError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise MalformedTokenError(f"it is not a delegation token: {error!r}") from None


def _number(value: Mapping[str, object], name: str) -> int:
    number = value[name]
    if not isinstance(number, int) or isinstance(number, bool):
        raise MalformedTokenError(f"{name} is not a number")
    return number


def _principal(text: object) -> Principal:
    if not isinstance(text, str):
        raise MalformedTokenError("a principal is not a text")
    return Principal.parse(desanitize(text))


def _id(text: object) -> str:
    if not isinstance(text, str) or not is_token_id(text):
        raise MalformedTokenError("the id of a token is not a name")
    return text


def is_token_id(text: str) -> bool:
    """Whether a text can be the id of a token, and the name of its znode. Kafka's ids have 22 letters and digits."""
    is_name = "/" not in text and text not in (".", "..")
    return is_name and 0 < len(text) <= _MAX_ID_LENGTH and text.isascii() and text.isprintable()


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def new_token_id() -> str:
    """A random UUID of version 4 in base64, as Kafka writes it."""
    made = uuid.UUID(bytes=secrets.token_bytes(16), version=4)
    return urlsafe_b64encode(made.bytes).decode().rstrip("=")


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    """The password with which a client logs in: the HMAC in base64."""
    return b64encode(token_hmac).decode()
