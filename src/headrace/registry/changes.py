"""Decides which records a change needs, or refuses the change. No I/O, and no change of the state.

The leader calls one of these functions, writes the records, reads them back, and answers. A function that raises has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.registry.compatibility.levels import LEVELS
from headrace.registry.errors import (
    id_taken,
    invalid_level,
    invalid_mode,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    unprocessable,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from headrace.registry.names import DEFAULT_CONTEXT, MAX_NAME_CHARACTERS, checked_subject, context_of, local_name
from headrace.registry.queries import one_version, referrer_ids
from headrace.registry.records import MAX_IDS, Key, Record, encode
from headrace.registry.schemas import PROTOBUF, SchemaText
from headrace.registry.state import DEFAULT_LEVEL, DEFAULT_MODE, RegistryState, Version

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
_MAX_ID = 2**31 - 1
#: Settings of Confluent's registry that change what the registry answers, and that do not exist here.
_REFUSED_SETTINGS = (
    "compatibilityPolicy",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
    "validateFields",
    "validateNames",
    "validateRules",
)


#: Settings that are a text; an empty one switches the setting off.
_TEXT_SETTINGS = ("alias", "compatibilityGroup")


@dataclass(frozen=True)
class Change:
    """
    :ivar records: what to write; none if nothing changes.
    :ivar answer: the answer once the records are written.
    """

    records: tuple[Record, ...]
    answer: Any


# -- schemas


def check_may_register(state: RegistryState, subject: str, given_id: int | None) -> None:
    """
    :raises RegistryError: if the mode of the subject does not allow it.
    """
    mode = _check_writable(state, subject)
    if given_id is not None and mode != "IMPORT":
        raise not_permitted(f"Subject {subject} is not in import mode: a schema with an id needs this mode")
    if given_id is None and mode == "IMPORT":
        raise not_permitted(f"Subject {subject} is in import mode: a schema needs an id")


def registered(version: Version) -> dict[str, object]:
    """The answer to a registration.

    The text of a Protobuf schema is left out: clients register a serialized descriptor, and confluent-kafka would keep
    the text of the answer in its place, and fail to read it.
    """
    found: dict[str, object] = {"id": version.schema_id, "version": version.version, "guid": version.schema.guid}
    return found if version.schema.kind == PROTOBUF else {**found, **version.schema.fields()}


def register(state: RegistryState, subject: str, schema: SchemaText, deleted: Version | None) -> Change:
    """Gives a subject a new version.

    :param deleted: a version of the subject with the same schema that was soft deleted: its id comes back.
    """
    context = context_of(subject)
    known = deleted.schema_id if deleted is not None else state.id_of(context, schema)
    schema_id = known if known is not None else state.max_id(context) + 1
    if schema_id > _MAX_ID:
        raise not_permitted(f"all ids of the context {context} are in use")
    stored = schema if deleted is None else deleted.schema
    return _new_version(Version(subject, _next_version(state, subject), schema_id, stored))


def import_schema(state: RegistryState, subject: str, schema: SchemaText, schema_id: int, number: int | None) -> Change:
    """Registers a schema with the id that it has in another registry."""
    others = state.versions_of_id(context_of(subject), schema_id)
    if any(each.schema != schema for each in others):
        raise id_taken(schema_id)
    existing = state.versions(subject, with_deleted=True)
    same = [each for each in existing if each.schema_id == schema_id and number in (None, each.version)]
    if same and not same[-1].is_deleted:
        return Change((), registered(same[-1]))
    if number is not None and any(each.version == number and each.schema_id != schema_id for each in existing):
        raise not_permitted(f"Subject {subject} has another schema as version {number}")
    return _new_version(Version(subject, number or _next_version(state, subject), schema_id, schema))


def _new_version(version: Version) -> Change:
    record = encode(Key("SCHEMA", version.subject, version.version), version.value())
    return Change((record,), registered(version))


def _next_version(state: RegistryState, subject: str) -> int:
    found = state.versions(subject, with_deleted=True)
    return found[-1].version + 1 if found else 1


def delete_version(state: RegistryState, subject: str, number: int | None, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    if number is None:
        found = one_version(state, subject, None)
    else:
        if not state.versions(subject, with_deleted=True):
            raise subject_not_found(subject)
        version = state.version(subject, number)
        if version is None:
            raise version_not_found(number)
        found = version
    if permanent and not found.is_deleted:
        raise version_not_soft_deleted(subject, found.version)
    if not permanent and found.is_deleted:
        raise version_soft_deleted(subject, found.version)
    _check_not_referenced(state, found, permanent=permanent)
    key = Key("SCHEMA", subject, found.version)
    if permanent:
        return Change((encode(key, None), noop(state)), found.version)
    return Change((encode(key, found.value(is_deleted=True)),), found.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Change:
    _check_writable(state, subject)
    versions = state.versions(subject, with_deleted=True)
    live = [each for each in versions if not each.is_deleted]
    if not versions:
        raise subject_not_found(subject)
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    for version in versions if permanent else live:
        _check_not_referenced(state, version, permanent=permanent, besides=subject)
    if permanent:
        # The newest first, because a version may refer to an older one.
        records = [encode(Key("SCHEMA", subject, each.version), None) for each in reversed(versions)]
        records += [encode(Key("DELETE_SUBJECT", subject), None), noop(state)]
        return Change(tuple(records), [each.version for each in versions])
    records = [encode(Key("DELETE_SUBJECT", subject), {"subject": subject, "version": live[-1].version})]
    if state.config(subject) is not None:
        records.append(encode(Key("CONFIG", subject), None))
    if state.mode(subject) is not None:
        records.append(encode(Key("MODE", subject), None))
    return Change(tuple(records), [each.version for each in live])


def noop(state: RegistryState) -> Record:
    """The record that a new leader writes, and that keeps the largest ids when schemas are removed."""
    return encode(Key("NOOP"), {MAX_IDS: state.max_ids()})


def _check_not_referenced(state: RegistryState, version: Version, *, permanent: bool, besides: str = "") -> None:
    """
    :param besides: a subject whose references do not count, because it is deleted as well.
    """
    referrers = referrer_ids(state, version, with_deleted=permanent, besides=besides)
    if referrers:
        raise reference_exists(version.subject, version.version, referrers)


def _check_writable(state: RegistryState, subject: str | None) -> str:
    mode = state.effective_mode(subject)
    if mode in _READ_ONLY:
        raise not_permitted(f"{'The registry' if subject is None else f'Subject {subject}'} is in read-only mode")
    return mode


# -- settings and modes


def put_config(state: RegistryState, subject: str | None, body: Mapping[str, Any]) -> Change:
    for name in _REFUSED_SETTINGS:
        if body.get(name) is not None:
            raise unprocessable(
                f"the setting {name} is not supported; use compatibility, normalize, alias or compatibilityGroup"
            )
    level, normalize = body.get("compatibility"), body.get("normalize")
    texts = {name: body[name] for name in _TEXT_SETTINGS if body.get(name) is not None}
    if level is None and normalize is None and not texts:
        raise invalid_level("")
    _check_writable(state, subject)
    value = dict(state.config(subject) or {})
    answer: dict[str, object] = {}
    if level is not None:
        if not isinstance(level, str) or level.upper() not in LEVELS:
            raise invalid_level(str(level))
        value["compatibilityLevel"] = answer["compatibility"] = level.upper()
    if normalize is not None:
        if not isinstance(normalize, bool):
            raise unprocessable("normalize must be true or false")
        value["normalize"] = answer["normalize"] = normalize
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > MAX_NAME_CHARACTERS:
            raise unprocessable(f"{name} must be a text of at most {MAX_NAME_CHARACTERS} characters")
        if name == "alias" and text:
            checked_subject(text)
        value[name] = answer[name] = text
    return Change((encode(Key("CONFIG", subject), value),), answer)


def delete_config(state: RegistryState, subject: str | None) -> Change:
    _check_writable(state, subject)
    found = state.config(subject)
    if found is None and subject is not None:
        raise subject_not_found(subject)
    answer = found or {"compatibilityLevel": DEFAULT_LEVEL}
    return Change((encode(Key("CONFIG", subject), None),) if found is not None else (), answer)


def put_mode(state: RegistryState, subject: str | None, body: Mapping[str, Any], *, force: bool) -> Change:
    mode = body.get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise invalid_mode(str(mode))
    mode = mode.upper()
    if mode == "READONLY_OVERRIDE" and subject is not None:
        raise not_permitted("READONLY_OVERRIDE is a mode of all subjects: use PUT /mode")
    records: list[Record] = []
    if mode == "IMPORT" and not force and state.effective_mode(subject) != "IMPORT":
        records = _removal_of_deleted(state, subject)
    return Change((*records, encode(Key("MODE", subject), {"mode": mode})), {"mode": mode})


def delete_mode(state: RegistryState, subject: str | None, *, recursive: bool = False) -> Change:
    """
    :param recursive: also delete the modes of the subjects of a context; None is the default context.
    """
    found = state.mode(subject)
    if found is None and subject is not None and not recursive:
        raise subject_not_found(subject)
    deleted = [subject] if found is not None else []
    if recursive and (subject is None or not local_name(subject)):
        context = DEFAULT_CONTEXT if subject is None else context_of(subject)
        deleted += [each for each in state.modes() if each and local_name(each) and context_of(each) == context]
    records = tuple(encode(Key("MODE", each), None) for each in deleted)
    return Change(records, {"mode": found or DEFAULT_MODE})


def _removal_of_deleted(state: RegistryState, subject: str | None) -> list[Record]:
    """The records that remove the soft-deleted versions of a subject, a context or all subjects.

    Imported schemas may then take their ids.

    :raises RegistryError: if there are versions that are not deleted, or that schemas elsewhere refer to.
    """
    context = None if subject is None else context_of(subject)
    if subject is not None and local_name(subject):
        names = [subject]
    else:
        names = [each for each in state.subjects() if context in (None, context_of(each))]
    if any(state.versions(each) for each in names):
        raise not_permitted("Cannot import since found existing subjects; delete them, or use force=true")
    removed = [version for name in names for version in state.versions(name, with_deleted=True)]
    places = {(each.subject, each.version) for each in removed}
    for version in removed:
        others = state.referrers(version.subject, version.version)
        left = sorted(each.schema_id for each in others if (each.subject, each.version) not in places)
        if left:
            raise reference_exists(version.subject, version.version, left)
    records = [encode(Key("SCHEMA", each.subject, each.version), None) for each in reversed(removed)]
    return [*records, noop(state)] if records else []
