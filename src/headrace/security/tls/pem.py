r"""Reads certificates and private keys from PEM text.

Kafka accepts PEM text in files and inside settings, so the text may come in several forms: with line ends, in one line
with blanks in place of line ends, or with the two characters ``\n`` in place of each line end (an option of a shell).
Text before, between and after the entries is ignored. An entry may begin with header lines such as ``Proc-Type``.
"""

from __future__ import annotations

from base64 import b64decode
from re import compile as regex

#: More text than this is not read. A trust store with all public authorities has 0.3 MB.
MAX_CHARACTERS = 8 << 20
#: A context with more certificates than this takes seconds to build.
_MAX_ENTRIES = 10_000

_ENTRY = regex(r"-----BEGIN ([A-Z0-9 ]{1,40})-----((?:(?!-----)[\s\S])*)-----END \1-----")
_ESCAPED_LINE_END = regex(r"\\r\\n|\\n|\\r")
_HEADER = regex(r"[\r\n]\s*[A-Za-z-]+:[^\r\n]*")
_BLANKS = regex(r"\s+")

CERTIFICATE_LABELS = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})


class PemError(ValueError):
    """The text has no such entry, or a broken one. The message is a part of a sentence and holds no secret."""


def certificates_in(text: str) -> tuple[bytes, ...]:
    """Returns the certificates of a PEM text as DER, in their order.

    :raises PemError: if there is none.
    """
    found = tuple(data for label, data in _entries(text) if label in CERTIFICATE_LABELS)
    if not found:
        raise PemError("it has no CERTIFICATE entry")
    return found


def private_key_in(text: str) -> bytes:
    """Returns the only private key of a PEM text as DER, encrypted or not.

    :raises PemError: if there is no key, or more than one.
    """
    found = [data for label, data in _entries(text) if label.endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise PemError("it has no PRIVATE KEY entry" if not found else f"it has {len(found)} private keys, not one")
    return found[0]


def to_pem(label: str, data: bytes) -> str:
    """Returns a PEM entry."""
    from base64 import encodebytes

    return f"-----BEGIN {label}-----\n{encodebytes(data).decode()}-----END {label}-----\n"


def _entries(text: str) -> list[tuple[str, bytes]]:
    if len(text) > MAX_CHARACTERS:
        raise PemError(f"it has more than {MAX_CHARACTERS} characters")
    plain = _ESCAPED_LINE_END.sub("\n", text)
    found = []
    for match in _ENTRY.finditer(plain):
        label, body = match[1], match[2]
        if "Proc-Type" in body and "ENCRYPTED" in body:
            raise PemError(
                "its private key is encrypted in the old form of OpenSSL; convert it by 'openssl pkcs8 -topk8'"
            )
        try:
            found.append((label, b64decode(_BLANKS.sub("", _HEADER.sub("", body)), validate=True)))
        except ValueError:  # also what is not ASCII
            raise PemError(f"a {label} entry is not valid base64") from None
    if len(found) > _MAX_ENTRIES:
        raise PemError(f"it has more than {_MAX_ENTRIES} entries")
    return found
