"""JAAS lines: parsed as data, and only with login modules that Headrace knows."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.properties import ConfigError
from headrace.security.sasl.jaas import MODULES, JaasEntry, jaas_for, parse_jaas
from headrace.security.sasl.mechanism import PLAIN, SCRAM_SHA_256

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


def test_a_line_of_a_broker() -> None:
    entry = parse_jaas(
        f'{PLAIN_MODULE} required\n  username="admin" password="a b;c=d"\n  user_admin="a b;c=d" user_alice=\'x"y\';'
    )
    assert (entry.module, entry.flag, entry.mechanisms) == (PLAIN_MODULE, "required", ("PLAIN",))
    assert entry.options["password"] == "a b;c=d"
    assert entry.users == {"admin": "a b;c=d", "alice": 'x"y'}


def test_escapes_comments_and_bare_values() -> None:
    entry = parse_jaas(f'{SCRAM_MODULE} REQUIRED /* a user */ username=bob // and more\n password="\\"\\\\\\101\\n";')
    assert entry.options == {"username": "bob", "password": '"\\A\n'}
    assert entry.flag == "required"


@given(st.dictionaries(NAMES, st.text(st.characters(codec="utf-8", exclude_characters="\n"))))
def test_every_value_can_be_quoted(options: dict[str, str]) -> None:
    quoted = " ".join(
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in options.items()
    )
    assert parse_jaas(f"{SCRAM_MODULE} optional {quoted};").options == options


@given(st.text("aP=;\"'\\ /*\n") | st.text())
def test_any_text_is_an_entry_or_a_config_error(text: str) -> None:
    for line in (text, f"{PLAIN_MODULE} required {text}", f"{PLAIN_MODULE} required {text};"):
        try:
            entry = parse_jaas(line)
        except ConfigError:
            continue
        assert isinstance(entry, JaasEntry)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "names 0"),
        (PLAIN_MODULE, "where a flag"),
        (f"{PLAIN_MODULE} required", "where an option"),
        (f"{PLAIN_MODULE} maybe;", "one of required"),
        (f'{PLAIN_MODULE} required password="hidden"', "where an option"),
        (f'{PLAIN_MODULE} required password "hidden";', "without '='"),
        (f"{PLAIN_MODULE} required password=;", "where a value"),
        (f'{PLAIN_MODULE} required password="hidden;', "quote that does not end"),
        (f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;", "names 2"),
    ],
)
def test_a_malformed_line_is_refused_without_showing_a_secret(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        parse_jaas(line, "listener.name.x.plain.sasl.jaas.config")
    assert str(error.value).startswith("listener.name.x.plain.sasl.jaas.config ")
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "headrace.security.principal.Principal",
        "os.system",
    ],
)
def test_no_class_is_loaded_by_name(module: str) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: a JAAS line cannot name what runs."""
    before = set(sys.modules)
    with pytest.raises(ConfigError, match="does not have") as error:
        parse_jaas(f'{module} required user.provider.url="ldap://127.0.0.1:1";')
    assert set(sys.modules) == before
    assert all(known in str(error.value) for known in MODULES)


def test_a_line_has_to_fit_its_mechanism() -> None:
    line = f'{PLAIN_MODULE} required username="a" password="b";'
    assert jaas_for(line, PLAIN).options["username"] == "a"
    with pytest.raises(ConfigError, match="not the login module of SCRAM-SHA-256"):
        jaas_for(line, SCRAM_SHA_256)


def test_an_entry_shows_no_option() -> None:
    assert "hidden" not in repr(parse_jaas(f'{PLAIN_MODULE} required password="hidden";'))
