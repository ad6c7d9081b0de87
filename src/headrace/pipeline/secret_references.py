"""Replaces references to secrets in the settings of a project, so that the project's files need not contain them.

::

    ${env:NAME}       the variable of the environment
    ${file:PATH}      the content of a file, without line ends at its end; a relative PATH begins at the project's
                      folder

A reference may be a part of a text. The errors name the reference, never the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headrace.security.small_files import UnreadableFileError, read_small_text

_REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")
_MAX_SECRET_BYTES = 1024 * 1024


class MissingSecret(ValueError):
    """A reference to a variable or file that does not exist."""


def with_secrets(text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """
    :raises MissingSecret: if a secret is not there.
    """
    return _REFERENCE.sub(lambda found: _secret(found[1], found[2], folder, environment), text)


def _secret(kind: str, name: str, folder: Path, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if name not in environment:
            raise MissingSecret(f"${{env:{name}}}: the variable {name} is not set in the environment")
        return environment[name]
    try:
        return read_small_text(folder / name, _MAX_SECRET_BYTES).rstrip("\r\n")
    except UnreadableFileError as error:
        raise MissingSecret(f"${{file:{name}}}: cannot read the file: {error}") from None
