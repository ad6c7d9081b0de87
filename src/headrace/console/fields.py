"""Describes and reads the inputs of pages and actions: the parameters of a query, and the fields of a form.

A field says its type, bounds and help once. The form, the validation, the error beside the input and the schema in the
OpenAPI document all come from it. ``KINDS`` is the table of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.console.problems import BadFields

Value = str | int | bool | None
_LONGEST = 1_000
_INT64 = 2**63 - 1
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Field:
    """One input.

    :param kind: a key of ``KINDS``.
    :param least, most: the bounds of a number.
    :param longest: the most characters of a text.
    :param check: returns what is wrong with a value, or an empty text.
    :param is_fixed: whether the page that links to the form gives the value, so that the form only shows it.
    :param is_data: whether the value becomes a part of a record, so that masks hide its fields in the audit log.
    """

    name: str
    label: str = ""
    kind: str = "text"
    default: Value = ""
    is_required: bool = False
    help: str = ""
    choices: tuple[str, ...] = ()
    least: int = -_INT64 - 1
    most: int = _INT64
    longest: int = _LONGEST
    check: Callable[[str], str] | None = None
    is_fixed: bool = False
    is_data: bool = False

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def input_type(self) -> str:
        """The ``type`` of the HTML input."""
        return KINDS[self.kind].input_type

    @property
    def is_secret(self) -> bool:
        """Whether the value is written neither into the audit log nor back into the form."""
        return self.kind == "secret"

    def schema(self) -> dict[str, object]:
        """The JSON schema of the value."""
        return {**KINDS[self.kind].schema(self), **({"description": self.help} if self.help else {})}


class Kind(NamedTuple):
    """A type of fields. ``parse`` raises ValueError with what is wrong."""

    parse: Callable[[Field, str], Value]
    schema: Callable[[Field], dict[str, object]]
    input_type: str


def _text(field: Field, text: str) -> str:
    if "\x00" in text:
        raise ValueError("it contains a NUL character")
    if len(text) > field.longest:
        raise ValueError(f"it has more than {field.longest} characters")
    return text


def _number(field: Field, text: str) -> int:
    digits = text.strip().replace("_", "").removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise ValueError("it is not a whole number")
    number = int(text)
    if not field.least <= number <= field.most:
        raise ValueError(f"it must be {_range(field)}")
    return number


def _range(field: Field) -> str:
    if field.most == _INT64:
        return f"at least {field.least}"
    return f"from {field.least} to {field.most}"


def _flag(_: Field, text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError("it is neither true nor false")
    return text.lower() in _TRUE


def _choice(field: Field, text: str) -> str:
    if text not in field.choices:
        raise ValueError(f"it is none of {', '.join(field.choices)}")
    return text


def _text_schema(field: Field) -> dict[str, object]:
    return {"type": "string", "maxLength": field.longest}


def _number_schema(field: Field) -> dict[str, object]:
    return {"type": "integer", "minimum": field.least, "maximum": field.most}


KINDS = {
    "text": Kind(_text, _text_schema, "text"),
    "long_text": Kind(_text, _text_schema, "textarea"),
    "secret": Kind(_text, _text_schema, "password"),
    "number": Kind(_number, _number_schema, "number"),
    "flag": Kind(_flag, lambda _: {"type": "boolean"}, "checkbox"),
    "choice": Kind(_choice, lambda field: {"type": "string", "enum": list(field.choices)}, "select"),
}


def read_fields(fields: Iterable[Field], given: Mapping[str, str]) -> dict[str, Value]:
    """Parses the values that were given. A field without a value gets its default.

    :raises BadFields: with what is wrong, by the name of the field.
    """
    values: dict[str, Value] = {}
    problems: dict[str, str] = {}
    known = {field.name for field in fields}
    for name in given.keys() - known:
        problems[name[:100]] = f"there is no such parameter; there are {', '.join(sorted(known)) or 'none'}"
    for field in fields:
        text = given.get(field.name, "")
        if text == "":
            values[field.name] = field.default
            if field.is_required:
                problems[field.name] = "a value is needed"
            continue
        try:
            values[field.name] = KINDS[field.kind].parse(field, text)
        except ValueError as error:
            problems[field.name] = str(error)
            continue
        if field.check is not None and (wrong := field.check(text)):
            problems[field.name] = wrong
    if problems:
        raise BadFields(problems, given)
    return values
