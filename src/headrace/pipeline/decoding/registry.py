"""Asks a schema registry that speaks Confluent's REST protocol for the schemas of records.

A record that was written with a registry begins with five bytes: a zero, and the id of its schema in four bytes. The
registry never changes the schema of an id, so an id is asked for once per worker process.

If the registry does not answer, or answers that it has a fault of its own, ``RegistryUnavailable`` ends the task, and
the runner tries again: the record may be good. An id that the registry does not know makes one record bad.

The number of schemas in memory is bounded, because the ids come from records, which anybody may have written.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from headrace.pipeline.secret_references import with_secrets

_TIMEOUT_S = 10
_MAX_ANSWER_BYTES = 8 << 20
MAX_SCHEMAS = 1000
_MAX_REFERENCES = 100
#: An id that the registry did not know may be registered later.
_ASK_AGAIN_AFTER_S = 60
_NOT_FOUND = 404
#: Incompatible with an earlier schema of the subject; not a schema.
_REFUSED = (409, 422)
_MAX_REASON_BYTES = 2000
HEADER_BYTES = 5
_Kept = TypeVar("_Kept")


class RegistryUnavailable(ConnectionError):
    """The registry does not answer, or has a fault of its own. The same request may succeed later."""


class UnknownSchema(ValueError):
    """The registry has no such schema."""


class IncompatibleSchema(ValueError):
    """The registry refuses to register a schema."""


class RegisteredSchema(NamedTuple):
    """
    :ivar kind: AVRO, PROTOBUF or JSON.
    :ivar references: the schemas that this one refers to, by the names that it uses, each after those it needs itself.
    """

    kind: str
    text: str
    references: Mapping[str, str]


@dataclass
class SchemaRegistry:
    """
    :param url: the address of the registry.
    :param options: ``basic.auth.user.info``, a reference to a secret of the form USER:PASSWORD, and
        ``ssl.ca.location``, a file with the certificates that the registry's certificate is checked against.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _schemas: OrderedDict[int, RegisteredSchema] = field(default_factory=OrderedDict, repr=False)
    _unknown: OrderedDict[int, float] = field(default_factory=OrderedDict, repr=False)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """
        :raises UnknownSchema: if the registry has no schema with this id.
        :raises RegistryUnavailable: if it does not answer.
        """
        found = self._schemas.get(schema_id)
        if found is None:
            found = self._ask(schema_id)
            _keep(self._schemas, schema_id, found)
        return found

    def _ask(self, schema_id: int) -> RegisteredSchema:
        asked_s = self._unknown.get(schema_id)
        is_unknown = asked_s is not None and time.monotonic() - asked_s < _ASK_AGAIN_AFTER_S
        answer = None if is_unknown else self._get(f"/schemas/ids/{schema_id}")
        if answer is not None:
            return self._registered(answer)
        if not is_unknown:
            _keep(self._unknown, schema_id, time.monotonic())
        raise UnknownSchema(f"the registry has no schema with the id {schema_id}")

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject; None if there is no such subject."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer is None else self._registered(answer)

    def register(self, subject: str, schema: str) -> int:
        """Registers an Avro schema, unless the subject has it.

        :return: the id of the schema.
        :raises IncompatibleSchema: if the registry refuses the schema.
        :raises RegistryUnavailable: if it does not answer.
        """
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema}, needs="id")
        if answer is None:
            raise RegistryUnavailable(f"{self.url} does not answer as a schema registry does")
        return int(answer["id"])

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._add_references(answer, references, 0)
        return RegisteredSchema(str(answer.get("schemaType", "AVRO")), str(answer["schema"]), references)

    def _add_references(self, answer: Mapping[str, Any], found: dict[str, str], depth: int) -> None:
        for each in answer.get("references") or ():
            if each["name"] in found:
                continue
            if depth + len(found) >= _MAX_REFERENCES:
                raise UnknownSchema(f"a schema of the registry refers to more than {_MAX_REFERENCES} others")
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}"
            referred = self._get(path)
            if referred is None:
                raise UnknownSchema(f"the registry has no version {each['version']} of {each['subject']}")
            self._add_references(referred, found, depth + 1)
            found[str(each["name"])] = str(referred["schema"])

    def _get(self, path: str, body: object = None, *, needs: str = "schema") -> dict[str, Any] | None:
        """The answer; None if there is no such thing.

        :param body: what is posted; None to ask only.
        :param needs: the field that the answer of a registry has.
        """
        request = Request(self.url.rstrip("/") + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        if login := self.options.get("basic.auth.user.info"):
            secret = with_secrets(login, Path("/"), os.environ)
            request.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
        try:
            # No proxy: the address in the project is the address to ask.
            with build_opener(ProxyHandler({}), *self._tls()).open(request, timeout=_TIMEOUT_S) as response:
                content = response.read(_MAX_ANSWER_BYTES + 1)
        except HTTPError as error:
            said = error.read(_MAX_REASON_BYTES).decode(errors="replace") if error.code in _REFUSED else ""
            error.close()
            if said:
                raise IncompatibleSchema(f"the registry at {self.url} refuses a schema: {said}") from None
            if error.code == _NOT_FOUND:
                return None
            raise RegistryUnavailable(f"the registry at {self.url} answers {error.code} {error.reason}") from None
        except (URLError, OSError, TimeoutError) as error:
            raise RegistryUnavailable(f"the registry at {self.url} does not answer: {error}") from None
        try:
            answer = json.loads(content[:_MAX_ANSWER_BYTES])
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or needs not in answer:
            raise RegistryUnavailable(f"{self.url} does not answer as a schema registry does")
        return answer

    def _tls(self) -> list[HTTPSHandler]:
        certificates = self.options.get("ssl.ca.location")
        return [HTTPSHandler(context=ssl.create_default_context(cafile=certificates))] if certificates else []


def _keep(cache: OrderedDict[int, _Kept], schema_id: int, value: _Kept) -> None:
    if len(cache) >= MAX_SCHEMAS:
        cache.popitem(last=False)
    cache[schema_id] = value


def schema_id_of(value: bytes) -> int:
    """The id of the schema at the beginning of a value.

    :raises ValueError: if the value does not begin with Confluent's five bytes.
    """
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise ValueError("the value does not begin with Confluent's five bytes")
    return int.from_bytes(value[1:HEADER_BYTES], "big")
