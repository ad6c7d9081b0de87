"""Writes a guess as the file of a source."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.pipeline.inference.guess import Guess
from headrace.pipeline.inference.types import split_columns

_MAX_LINE = 110


def source_text(topic: str, guess: Guess, *, record_count: int) -> str:
    """The text of ``sources/NAME.toml``."""
    lines = [f"# Guessed by 'headrace sources infer' from {record_count} records of {topic}."]
    lines += [f"# {note}" for note in guess.notes]
    lines += ["", f'kind = "{guess.kind}"', f"topics = [{_text(topic)}]", "", "[decode]", *_table(guess.fields)]
    if guess.key_fields:
        lines += ["", "[decode.key]", *_table(guess.key_fields)]
    return "\n".join(lines) + "\n"


def _table(fields: Mapping[str, object]) -> list[str]:
    return [f"{name} = {_value(name, value)}" for name, value in fields.items()]


def _value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)} = {_text(str(each))}" for key, each in value.items()) + "}"
    text = str(value)
    if name == "schema" and len(text) > _MAX_LINE and "'''" not in text:
        return "'''\n" + ",\n".join(split_columns(text)) + "\n'''"
    return _text(text)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a text of TOML has the same escapes
