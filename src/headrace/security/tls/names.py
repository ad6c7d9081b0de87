r"""Distinguished names in the form of RFC 2253, exactly as Java's ``X500Principal.getName()`` writes them.

Kafka's ACLs and ``super.users`` contain this text, so it must be the same to the last character. A name is a row of
RDNs, an RDN is a set of attributes, an attribute is a type and a value::

    Name ::= SEQUENCE OF SET OF SEQUENCE { OBJECT IDENTIFIER, value }

* RDNs are written in reverse order, with commas between them. Attributes of one RDN keep their order, with ``+``
  between them.
* Nine types have names (``_KEYWORDS``). Every other type is its identifier with dots, and its value is ``#`` and the
  encoded value in hexadecimal digits: ``1.2.840.113549.1.9.1=#160d...`` is a mail address.
* A value that is not a string is written in hexadecimal digits, too.
* ``,=+<>#;"\`` have a backslash before them, wherever they are. So have blanks and carriage returns at the start and at
  the end. A character 0 is ``\00``.

The name comes from the peer's certificate. It is read from the certificate's bytes, without ``cryptography``, which
refuses some names that Java accepts.
"""

from __future__ import annotations

from headrace.security.tls.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    DerError,
    Element,
    object_identifier,
    read_element,
)

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}

#: The tags that Java 17 takes for strings: UTF8, Printable, T61, IA5, General and BMP. It decodes all of them as UTF-8.
_STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})

_SPECIAL = frozenset(',=+<>#;"\\')
_BLANKS = " \r"

#: A longer name is refused: the name becomes the name of a user.
_MAX_NAME_BYTES = 64 << 10


def certificate_subject(certificate: bytes) -> str:
    """Returns the subject of a certificate (DER).

    :raises DerError: if the certificate is not valid.
    """
    (signed, *_) = read_element(certificate).expect(SEQUENCE).elements()
    fields = list(signed.expect(SEQUENCE).elements())
    if fields and fields[0].tag == 0xA0:  # the version is missing in certificates of version 1
        del fields[0]
    # serial number, algorithm, issuer, validity, subject
    if len(fields) < 5:
        raise DerError("not a certificate")
    return java_name(fields[4].encoded)


def java_name(name: bytes) -> str:
    """Returns a distinguished name (DER) as Java writes it.

    :raises DerError: if the bytes are not a name.
    """
    if len(name) > _MAX_NAME_BYTES:
        raise DerError("the name is too long")
    rdns = [_rdn(rdn.expect(SET)) for rdn in read_element(name).expect(SEQUENCE).elements()]
    return ",".join(reversed(rdns))


def _rdn(rdn: Element) -> str:
    return "+".join(_attribute(attribute.expect(SEQUENCE)) for attribute in rdn.elements())


def _attribute(attribute: Element) -> str:
    parts = list(attribute.elements())
    if len(parts) != 2:
        raise DerError("not an attribute of a name")
    identifier = object_identifier(parts[0].expect(OBJECT_IDENTIFIER).content)
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or parts[1].tag not in _STRING_TAGS:
        return f"{keyword or identifier}=#{parts[1].encoded.hex()}"
    return f"{keyword}={_escaped(parts[1].content.decode('utf-8', 'replace'))}"


def _escaped(value: str) -> str:
    out = ["\\00" if char == "\0" else "\\" + char if char in _SPECIAL else char for char in value]
    lead = len(value) - len(value.lstrip(_BLANKS))
    trail = len(value.rstrip(_BLANKS))
    for at in (*range(lead), *range(max(trail, lead), len(out))):
        out[at] = "\\" + out[at]
    return "".join(out)
