"""Holds how the bytes of records become columns: the table [decode] of a view or of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

FORMATS = ("json", "csv", "raw", "avro", "protobuf", "python")
FRAMINGS = ("none", "confluent")
DEBEZIUM = "debezium"


@dataclass(frozen=True)
class FileText:
    """The text of a file: SQL, Python or a schema.

    :param file: the name of the file, relative to the folder of the project, for messages.
    :param function: the name of the function, if it is Python.
    """

    file: str
    text: str
    function: str = ""

    @property
    def is_python(self) -> bool:
        return bool(self.function)

    @property
    def essence(self) -> str:
        """The text without differences that do not matter: line ends, trailing spaces, blank lines at both ends."""
        return "\n".join(line.rstrip() for line in self.text.strip().splitlines()) + f"\n{self.function}"


@dataclass(frozen=True)
class Decode:
    """How a record's bytes become columns.

    :param schema: columns as Spark writes them (``user STRING, ms BIGINT``), or an Avro schema in JSON.
    :param options: options of Spark's readers for JSON and CSV.
    :param framing: what precedes an Avro value; ``confluent`` means five bytes with the id of the schema.
    :param registry: the address of a schema registry. The schema of the record's id is then the schema that the
        record was written with, and ``schema`` the one that it is read with.
    :param registry_options: TLS and login of the registry (``decoding.registry``).
    :param descriptor: for Protobuf, a file of descriptors (``protoc --descriptor_set_out``), in base64.
    :param message: for Protobuf, the full name of the message.
    :param envelope: ``debezium`` if the value is a change in Debezium's envelope. The schema is then that of the row
        in ``after``.
    :param key: how the record's key becomes further columns; None if only its bytes are a column (``_key``).
    """

    format: str = "json"
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)
    function: FileText | None = None
    framing: str = "none"
    key: Decode | None = None
    envelope: str = ""
    registry: str = ""
    registry_options: dict[str, str] = field(default_factory=dict)
    descriptor: str = ""
    message: str = ""

    @property
    def essence(self) -> list[object]:
        """The values that the columns depend on, as JSON values. A field that is newer counts only if it is set."""
        made: list[object] = [
            self.format, " ".join(self.schema.split()), self.options, self.framing,
            self.function.essence if self.function else "",
        ]  # fmt: skip
        if self.key is not None:
            made.append({"key": self.key.essence})
        newer = {
            "envelope": self.envelope,
            "registry": bool(self.registry),  # the registry may move to another address
            "descriptor": self.descriptor,
            "message": self.message,
        }
        made += [{name: value} for name, value in newer.items() if value]
        return made

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        decode = dict(values)
        decode["function"] = FileText(**decode["function"]) if decode["function"] else None
        decode["key"] = cls.from_dict(decode["key"]) if decode.get("key") else None
        return cls(**decode)
