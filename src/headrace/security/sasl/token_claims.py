"""The claims of a JSON Web Token (RFC 7519): decoded, and checked against a clock.

A number of seconds may be an integer or a float. A bool is not a number here, although Python says so. JSON that is too
deep, numbers that are not finite, and texts of the wrong type refuse the token; nothing else is raised.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from headrace.security.sasl.oauthbearer import INSUFFICIENT_SCOPE, TokenRefused

Claims = Mapping[str, Any]


def decode_part(text: str) -> Claims:
    """Decodes the header or the claims of a token.

    :raises TokenRefused: if the text is not a JSON object in base64.
    """
    try:
        decoded = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("a part of the token is not JSON in base64") from None
    if not isinstance(decoded, dict):
        raise TokenRefused("a part of the token is not a JSON object")
    return decoded


def seconds(claims: Claims, name: str) -> float | None:
    """
    :raises TokenRefused: if the claim is there, and is not a time.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e15:
        raise TokenRefused(f"the claim {name} is not a time in seconds")
    return float(value)


def text(claims: Claims, name: str) -> str:
    """
    :raises TokenRefused: if the claim is missing, blank, or no text.
    """
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"the token has no claim {name}, or the claim is no text")
    return value


def scopes(claims: Claims, name: str) -> frozenset[str]:
    """Returns the scopes of a token: a text with blanks between them, or a list. Without the claim, none.

    :raises TokenRefused: if the claim is something else.
    """
    value = claims.get(name)
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    raise TokenRefused(f"the claim {name} is neither a text nor a list of texts")


def check_times(claims: Claims, now_ms: int, skew_ms: int, *, needs_issued_at: bool) -> int:
    """Returns when the token expires, in milliseconds since 1970.

    :raises TokenRefused: if the token has expired, is not valid yet, or does not say when.
    """
    expires_s, issued_s, begins_s = (seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_s is None or (needs_issued_at and issued_s is None):
        raise TokenRefused(f"the token has no claim {'exp' if expires_s is None else 'iat'}")
    if now_ms - skew_ms >= expires_s * 1000:
        raise TokenRefused("the token has expired")
    for begin_s in (issued_s, begins_s):
        if begin_s is not None and begin_s * 1000 > now_ms + skew_ms:
            raise TokenRefused("the token is not valid yet")
    if issued_s is not None and expires_s <= issued_s:
        raise TokenRefused("the token expires before it was issued")
    return int(expires_s * 1000)


def check_scopes(found: frozenset[str], required: frozenset[str]) -> None:
    """
    :raises TokenRefused: if a required scope is missing.
    """
    if not required <= found:
        raise TokenRefused(
            "the token lacks a required scope", status=INSUFFICIENT_SCOPE, scope=" ".join(sorted(required))
        )
