"""Kafka's text form of a principal."""

import pytest

from headrace.security.principal import ANONYMOUS, Principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,OU=b:c", "User:", "Group:ops"])
def test_a_principal_is_parsed_and_written_in_the_same_form(text: str) -> None:
    assert str(Principal.parse(text)) == text


def test_the_name_is_everything_after_the_first_colon() -> None:
    assert Principal.parse("User:a:b") == Principal("User", "a:b")


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_a_text_without_a_type_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a principal"):
        Principal.parse(text)


def test_a_connection_without_a_login_is_anonymous() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
