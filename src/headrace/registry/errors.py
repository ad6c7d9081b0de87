"""Holds the errors of the API: a status of HTTP, Confluent's error code, and a message.

Clients decide by the code. The first three digits of a five-digit code are the status. The words of a message are
Confluent's where a client or a script may look for them.
"""

from __future__ import annotations

INVALID_SCHEMA = 42201


class RegistryError(Exception):
    """A request cannot be answered; the answer has the status, the code and the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class NotFound(RegistryError):
    """The registry does not have what was asked for, as far as it has read the topic."""


def subject_not_found(subject: str) -> NotFound:
    return NotFound(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> NotFound:
    return NotFound(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | str | None = None) -> NotFound:
    return NotFound(40403, "Schema not found" if schema_id is None else f"Schema {str(schema_id)[:40]} not found")


def subject_soft_deleted(subject: str) -> NotFound:
    return NotFound(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> NotFound:
    return NotFound(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> NotFound:
    text = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return NotFound(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> NotFound:
    return NotFound(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_subject_config(subject: str) -> NotFound:
    return NotFound(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> NotFound:
    return NotFound(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> RegistryError:
    details = "; ".join(messages)
    return RegistryError(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}',
    )


def bad_request(message: str) -> RegistryError:
    return RegistryError(400, message)


def unprocessable(message: str) -> RegistryError:
    return RegistryError(422, message)


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {message}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version[:40]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )


def invalid_level(level: str) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level {level[:40]!r}. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(mode: str) -> RegistryError:
    return RegistryError(
        42204, f"Invalid mode {mode[:40]!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT"
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int, referrers: list[int]) -> RegistryError:
    ids = ", ".join(str(each) for each in referrers[:10])
    return RegistryError(
        42206,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}: "
        f"schemas with the ids {ids} refer to it",
    )


def id_taken(schema_id: int) -> RegistryError:
    return RegistryError(42205, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str, reason: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject[:100]}' is not a valid subject: {reason}")


def invalid_rule_set(reason: str) -> RegistryError:
    return RegistryError(42210, f"Invalid rule set: {reason}")


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(42211, f"The specified context '{context[:100]}' is not empty.")


def store_failed(message: str) -> RegistryError:
    return RegistryError(50001, f"Error in the backend data store: {message}")


def timed_out(message: str) -> RegistryError:
    return RegistryError(50002, f"Operation timed out: {message}")


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(50003, f"Error while forwarding the request to the primary: {message}")


def no_leader(message: str) -> RegistryError:
    return RegistryError(50004, f"Unknown leader: {message}")
