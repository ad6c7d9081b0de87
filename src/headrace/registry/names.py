"""Parses the names of subjects. A subject belongs to a context, and ids are unique within a context.

A qualified name is ``:.context:subject``. A name without this prefix is in the default context, ``.``::

    orders-value              the subject orders-value of the context .
    :.test:orders-value       the subject orders-value of the context .test
    :.test:                   the context .test itself: where a request takes a subject for the settings of a context
"""

from __future__ import annotations

from headrace.registry.errors import invalid_subject

DEFAULT_CONTEXT = "."
MAX_NAME_CHARACTERS = 1_000
_RESERVED = ("__GLOBAL", "__EMPTY")


def context_of(subject: str) -> str:
    """The context of a qualified name."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT
    end = subject.find(":", 1)
    return subject[1:end] if end > 0 else subject[1:]


def local_name(subject: str) -> str:
    """The name within its context."""
    if not subject.startswith(":."):
        return subject
    end = subject.find(":", 1)
    return subject[end + 1 :] if end > 0 else ""


def qualified(context: str, name: str) -> str:
    """The form in which the registry stores a name: without a prefix in the default context."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def context_of_path(name: str) -> str:
    """The context of a path: ``:.test:``, ``.test`` and ``test`` mean the same."""
    name = name.strip(":")
    return name if name.startswith(".") else f".{name}"


def with_context(context: str, subject: str) -> str:
    """A name of a request whose path begins with ``/contexts/CONTEXT``. A name with its own context keeps it."""
    return (
        qualified(context_of(subject), local_name(subject)) if subject.startswith(":.") else qualified(context, subject)
    )


def checked_subject(subject: str) -> str:
    """
    :return: the name in its stored form.
    :raises RegistryError: if it cannot be the name of a subject.
    """
    if len(subject) > MAX_NAME_CHARACTERS:
        raise invalid_subject(subject, f"a name has at most {MAX_NAME_CHARACTERS} characters")
    name = local_name(subject)
    if not name or name in _RESERVED:
        raise invalid_subject(subject, "the name is empty or reserved")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in subject):
        raise invalid_subject(subject, "a name has no control characters")
    if any("\ud800" <= character <= "\udfff" for character in subject):
        raise invalid_subject(subject, "a name is Unicode text")
    return qualified(context_of(subject), name)
