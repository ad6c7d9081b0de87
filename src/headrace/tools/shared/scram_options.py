"""Parses SCRAM credentials as Kafka's tools write them on the command line. No I/O.

::

    configs   SCRAM-SHA-256=[iterations=8192,password=secret]         the password is everything up to the bracket
    storage   SCRAM-SHA-256=[name=admin,iterations=8192,password=secret]
              SCRAM-SHA-256=[name=admin,salt="BASE64",saltedpassword="BASE64"]

The number of iterations is 4096 if it is not given. No error shows a password.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from headrace.security.sasl.scram import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    credential_of,
    new_credential,
)
from headrace.tools.shared.commands import UsageError

_PASSWORD = re.compile(r"(?:iterations=(-?[0-9]{1,9}),)?password=(.*)", re.DOTALL)
_ADDED = re.compile(r"([^=]+)=\[(.*)\]", re.DOTALL)
_FIELD = re.compile(r"""(name|iterations|password|salt|saltedpassword)=(?:"([^"]*)"|([^,]*))(?:,|$)""")
_DEFAULT = -1


class PasswordAndIterations(NamedTuple):
    password: str
    iterations: int


def parse_password(mechanism: str, text: str) -> PasswordAndIterations:
    """Parses ``iterations=8192,password=secret``."""
    found = _PASSWORD.fullmatch(text)
    if found is None or not found[2]:
        raise UsageError(f"Invalid credential property {mechanism}: write [iterations=N,password=PASSWORD]")
    return PasswordAndIterations(found[2], _iterations(mechanism, found[1]))


def parse_added_user(text: str) -> tuple[str, str, ScramCredential]:
    """Parses the value of ``--add-scram``; returns the user's name, the mechanism and the credential."""
    added = _ADDED.fullmatch(text.strip())
    mechanism = added[1].strip() if added is not None else ""
    if added is None or mechanism not in HASHES:
        raise UsageError(
            f"--add-scram has to be MECHANISM=[name=USER,password=PASSWORD] with a mechanism of {', '.join(HASHES)}"
        )
    values = _fields(added[2])
    if not values.get("name"):
        raise UsageError("You must supply 'name' to add-scram")
    iterations = _iterations(mechanism, values.get("iterations"))
    if ("password" in values) == ("saltedpassword" in values):
        raise UsageError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "password" in values:
        if "salt" in values:
            credential = _salted(mechanism, values["password"].encode(), _decoded("salt", values["salt"]), iterations)
        else:
            credential = new_credential(mechanism, values["password"], iterations)
    else:
        if "salt" not in values:
            raise UsageError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _decoded("saltedpassword", values["saltedpassword"])
        credential = credential_of(mechanism, salted, _decoded("salt", values["salt"]), iterations)
    return values["name"], mechanism, credential


def _salted(mechanism: str, password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    from hashlib import pbkdf2_hmac

    return credential_of(mechanism, pbkdf2_hmac(HASHES[mechanism], password, salt, iterations), salt, iterations)


def _fields(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None:
            raise UsageError("--add-scram has a part that is not name, iterations, password, salt or saltedpassword")
        values[found[1]] = found[3] if found[2] is None else found[2]
        position = found.end()
    return values


def _decoded(name: str, text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not value:
        raise UsageError(f"'{name}' of add-scram has to be base64")
    return value


def _iterations(mechanism: str, text: str | None) -> int:
    try:
        iterations = int(text) if text else _DEFAULT
    except ValueError:
        raise UsageError(f"The iterations of {mechanism} have to be a number") from None
    if iterations == _DEFAULT:
        return MIN_ITERATIONS
    if iterations < MIN_ITERATIONS:
        raise UsageError(f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}")
    if iterations > MAX_ITERATIONS:
        raise UsageError(f"Iterations {iterations} is more than the maximum {MAX_ITERATIONS} of {mechanism}")
    return iterations
