"""The four messages of a SCRAM login (RFC 5802), as text.

::

    client first   n,[a=AUTHZID],n=NAME,r=NONCE[,ext=value ...]
    server first   r=NONCE AND MORE,s=SALT,i=ITERATIONS
    client final   c=HEADER,r=NONCE AND MORE,p=PROOF            (c: base64 of the text before n=, here mostly "n,,")
    server final   v=SIGNATURE, or e=ERROR

In names, a comma is written as ``=2C`` and an equals sign as ``=3D``. Kafka adds the extension ``tokenauth=true`` for
delegation tokens. There is no channel binding (``p=``). Mandatory extensions (``m=``) do not exist, so a message with
one is refused, as the RFC demands.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from headrace.security.sasl.mechanism import AuthenticationFailed, text_of

_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION = re.compile(r"[A-Za-z]+")
_DIGITS = re.compile(r"[0-9]{1,9}")
TOKEN_AUTHENTICATION = "tokenauth"
#: A message with more parts is refused before they are looked at. Kafka's clients send one extension at most.
_MAX_PARTS = 100


@dataclass(frozen=True, slots=True)
class ClientFirst:
    username: str
    nonce: str
    authorization_id: str = ""
    extensions: dict[str, str] = field(default_factory=dict)
    #: What the client-final message repeats, and what the proofs are made of.
    header: str = "n,,"
    bare: str = ""

    @property
    def is_token(self) -> bool:
        return self.extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ServerFirst:
    nonce: str
    salt: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    header: bytes
    nonce: str
    proof: bytes = field(repr=False)
    #: The message up to the proof; the proofs are made of it.
    without_proof: str = field(repr=False)


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """
    :raises AuthenticationFailed: if the name is empty, or has an equals sign that is not part of =2C or =3D.
    """
    if not name or "\0" in name or "=" in name.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationFailed("the user name is empty, or has an equals sign that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


def client_first(username: str, nonce: str, extensions: dict[str, str]) -> ClientFirst:
    more = "".join(f",{name}={value}" for name, value in extensions.items())
    return ClientFirst(username, nonce, extensions=extensions, bare=f"n={escaped(username)},r={nonce}{more}")


def read_client_first(token: bytes) -> ClientFirst:
    text = text_of(token, "the first SCRAM message")
    flag, _, rest = text.partition(",")
    authorization_id, _, bare = rest.partition(",")
    if flag not in ("n", "y"):
        raise AuthenticationFailed("the client asks for channel binding, or the first SCRAM message is malformed")
    if authorization_id:
        authorization_id = unescaped(_value(authorization_id, "a"))
    name, nonce, *more = _parts(bare, 2)
    return ClientFirst(
        unescaped(_value(name, "n")),
        _nonce(_value(nonce, "r")),
        authorization_id,
        dict(map(_extension, more)),
        header=text[: len(text) - len(bare)],
        bare=bare,
    )


def read_server_first(token: bytes) -> ServerFirst:
    nonce, salt, iterations, *more = _parts(text_of(token, "the server's first SCRAM message"), 3)
    list(map(_extension, more))
    count = _value(iterations, "i")
    if not _DIGITS.fullmatch(count):
        raise AuthenticationFailed("the number of iterations is not a number of at most nine digits")
    return ServerFirst(_nonce(_value(nonce, "r")), _decoded(_value(salt, "s")), int(count))


def read_client_final(token: bytes) -> ClientFinal:
    text = text_of(token, "the last SCRAM message")
    header, nonce, *more, proof = _parts(text, 3)
    list(map(_extension, more))
    return ClientFinal(
        _decoded(_value(header, "c")),
        _nonce(_value(nonce, "r")),
        _decoded(_value(proof, "p")),
        text[: len(text) - len(proof) - 1],
    )


def read_server_final(token: bytes) -> bytes:
    """Returns the server's signature.

    :raises AuthenticationFailed: if the message is malformed, or has an error instead of a signature.
    """
    first, *more = _parts(text_of(token, "the server's last SCRAM message"), 1)
    list(map(_extension, more))
    if first.startswith("e="):
        raise AuthenticationFailed(f"the server refused the login: {first[2:100]}")
    return _decoded(_value(first, "v"))


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _parts(text: str, minimum: int) -> list[str]:
    parts = text.split(",", _MAX_PARTS)
    if len(parts) < minimum:
        raise AuthenticationFailed("a SCRAM message has too few parts")
    if len(parts) > _MAX_PARTS:
        raise AuthenticationFailed("a SCRAM message has too many parts")
    return parts


def _value(part: str, name: str) -> str:
    if not part.startswith(f"{name}="):
        raise AuthenticationFailed(f"a SCRAM message has no {name}= where {name}= has to be")
    return part[2:]


def _extension(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    # "m" is the RFC's mandatory extension: a side that does not know the extension has to refuse the message.
    if not equals or not value or name == "m" or not _EXTENSION.fullmatch(name):
        raise AuthenticationFailed("a SCRAM message has a malformed or unknown extension")
    return name, value


def _nonce(text: str) -> str:
    if not _NONCE.fullmatch(text):
        raise AuthenticationFailed("a SCRAM message has a malformed nonce")
    return text


def _decoded(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if not value:
        raise AuthenticationFailed("a SCRAM message has a value that is not base64")
    return value
