"""Reads ``registry_options`` of [decode] and of [publish]: how a schema registry is reached.

The login stays a reference to a secret, so that no file and no catalog has it.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.pipeline.project.toml_files import Section, did_you_mean
from headrace.pipeline.secret_references import MissingSecret, with_secrets

_OPTIONS = ("basic.auth.user.info", "ssl.ca.location")


def read_registry_options(section: Section, table: str, folder: Path) -> dict[str, str]:
    """The options with absolute paths. Problems are reported.

    :param table: the name of the table, for messages.
    :param folder: of the project.
    """
    made = section.mapping("registry_options")
    for name in made:
        if name not in _OPTIONS:
            section.report(
                "registry_options", f"{table}.registry_options has no option {name!r}{did_you_mean(name, _OPTIONS)}"
            )
    if certificates := made.get("ssl.ca.location"):
        made["ssl.ca.location"] = str(folder / certificates)
    if login := made.get("basic.auth.user.info"):
        if "${" not in login:
            message = 'must be a reference to a secret, such as "${env:REGISTRY_LOGIN}"'
            section.report("registry_options", f"{table}.registry_options: basic.auth.user.info {message}")
            return {}
        made["basic.auth.user.info"] = login.replace("${file:", f"${{file:{folder}/")
        try:
            with_secrets(made["basic.auth.user.info"], folder, os.environ)
        except MissingSecret as error:
            section.report("registry_options", f"{table}.registry_options: {error}")
    return made
