from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.tls.der import DerError, object_identifier, read_element
from headrace.security.tls.names import certificate_subject, java_name

KEY = generate_private_key(SECP256R1())


def name(*rdns):
    """Makes a name of RDNs, each a list of (type, value)."""
    made = [
        x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in rdn])
        for rdn in (rdn if isinstance(rdn, list) else [rdn] for rdn in rdns)
    ]
    return x509.Name(made)


def shown(*rdns):
    return java_name(name(*rdns).public_bytes())


def certificate(subject):
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name((NameOID.COMMON_NAME, "issuer")), subject, KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


CN, ORG, OU, C = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COUNTRY_NAME
CAROL = certificate(name((CN, "carol")))[:300]  # what follows is a signature of any length


def test_the_order_is_reversed_and_special_characters_are_escaped():
    assert shown((CN, "carol"), (OU, "Data, Team"), (ORG, "Acme"), (C, "DE")) == r"C=DE,O=Acme,OU=Data\, Team,CN=carol"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a=b+c", r"a\=b\+c"),
        ("#1 <x> ;", r"\#1 \<x\> \;"),
        ('say "hi"', r"say \"hi\""),
        ("back\\slash", r"back\\slash"),
        ("  both  ", r"\ \ both\ \ "),
        (" ", r"\ "),
        ("Zürich 日本", "Zürich 日本"),
        ("a\0b", r"a\00b"),
        ("a\r", "a\\\r"),
    ],
)
def test_values(value, written):
    assert shown((CN, value)) == f"CN={written}"


def test_attributes_of_one_rdn_are_joined_in_the_order_of_their_encoding():
    assert shown([(CN, "a"), (OU, "b")], (ORG, "c")) == "O=c,CN=a+OU=b"


@pytest.mark.parametrize(
    ("oid", "keyword"),
    [
        (NameOID.LOCALITY_NAME, "L"),
        (NameOID.STATE_OR_PROVINCE_NAME, "ST"),
        (NameOID.STREET_ADDRESS, "STREET"),
        (NameOID.DOMAIN_COMPONENT, "DC"),
        (NameOID.USER_ID, "UID"),
    ],
)
def test_types_with_names(oid, keyword):
    assert shown((oid, "x")) == f"{keyword}=x"


def test_other_types_are_identifiers_with_encoded_values():
    assert shown((NameOID.EMAIL_ADDRESS, "a@b.c")) == "1.2.840.113549.1.9.1=#16056140622e63"
    assert shown((NameOID.TITLE, "Dr")) == "2.5.4.12=#0c024472"


def test_a_value_that_is_not_a_string_is_encoded():
    universal = x509.Name([x509.NameAttribute(CN, "x", _type=_ASN1Type.UniversalString)])
    assert java_name(universal.public_bytes()) == "CN=#1c0400000078"


def test_an_empty_name():
    assert shown() == ""


def test_the_subject_of_a_certificate():
    assert certificate_subject(certificate(name((CN, "carol"), (ORG, "Acme")))) == "O=Acme,CN=carol"


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
PAIR = st.tuples(st.sampled_from([CN, ORG, OU, NameOID.LOCALITY_NAME]), TEXT)


def unescaped(written):
    """Splits a name as RFC 2253 is read: returns RDNs of (keyword, value)."""
    rdns, keyword, value, at = [[]], None, "", 0
    start = 0
    while at <= len(written):
        char = written[at] if at < len(written) else ","
        if keyword is None:
            if char == "=":
                keyword, value = written[start:at], ""
        elif char == "\\":
            at += 1
            if written[at : at + 2] == "00":
                value, at = value + "\0", at + 1
            else:
                value += written[at]
        elif char in ",+":
            rdns[-1].append((keyword, value))
            keyword, start = None, at + 1
            if char == "," and at < len(written):
                rdns.append([])
        else:
            value += char
        at += 1
    return rdns[::-1]


@given(st.lists(st.lists(PAIR, min_size=1, max_size=3, unique_by=lambda pair: pair[0]), min_size=1, max_size=4))
def test_what_is_written_can_be_read_back(rdns):
    keywords = {CN: "CN", ORG: "O", OU: "OU", NameOID.LOCALITY_NAME: "L"}
    read = unescaped(shown(*rdns))
    assert [sorted(rdn) for rdn in read] == [sorted((keywords[oid], value) for oid, value in rdn) for rdn in rdns]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_name_are_refused_or_read(data):
    for read in (java_name, certificate_subject):
        try:
            text = read(data)
        except DerError:
            continue
        assert isinstance(text, str)


@given(st.data())
def test_a_damaged_certificate_is_refused_or_read(data):
    whole = bytearray(CAROL)
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        subject = certificate_subject(cut)
    except DerError:
        subject = ""
    assert isinstance(subject, str)


def test_a_long_name_is_refused():
    with pytest.raises(DerError, match="too long"):
        java_name(name(*[(CN, "x" * 60)] * 1200).public_bytes())


def test_lengths_are_bounded_by_what_there_is():
    for broken in (
        b"",
        b"\x30",
        b"\x30\x80",
        b"\x30\x85\x01\x01\x01\x01\x01",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x1f\x01\x00",
    ):
        with pytest.raises(DerError):
            read_element(broken)


def test_identifiers():
    assert object_identifier(bytes.fromhex("883703")) == "2.999.3"
    for broken in (b"", b"\x80", b"\x2a" * 65):
        with pytest.raises(DerError):
            object_identifier(broken)
