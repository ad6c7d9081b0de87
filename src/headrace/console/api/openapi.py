"""Makes the OpenAPI document of the console from the registries of pages and actions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version as package_version
from inspect import getdoc
from typing import Any, get_type_hints

from headrace.console.actions.action import Action, Done
from headrace.console.api.schemas import Schemas
from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.protection.origin import TOKEN_HEADER

_ERROR: dict[str, object] = {
    "type": "object",
    "required": ["error", "message", "advice"],
    "properties": {
        "error": {"type": "string", "description": "the name of the error; Kafka's name if the cluster refused"},
        "message": {"type": "string"},
        "advice": {"type": "string"},
        "fields": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def openapi_document(pages: Iterable[Page], actions: Iterable[Action]) -> dict[str, Any]:
    schemas = Schemas()
    schemas.components["Error"] = _ERROR
    paths: dict[str, Any] = {page.api_path: {"get": _page(page, schemas)} for page in pages}
    paths |= {action.api_path: {"post": _action(action, schemas)} for action in actions}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace console",
            "version": package_version("headrace"),
            "description": f"What the pages of the console show. A change needs the header {TOKEN_HEADER} with the "
            "csrf_token of GET /api/session, and the cookie of that answer.",
        },
        "paths": {**paths, "/api/session": {"get": _session()}},
        "components": {
            "schemas": schemas.components,
            "responses": {
                "Error": {"description": "why there is no answer", "content": _json({"$ref": _schema_ref("Error")})}
            },
        },
    }


def _page(page: Page, schemas: Schemas) -> dict[str, Any]:
    return {
        "operationId": f"read{page.api_path.removeprefix('/api').replace('/', '-').replace('{', '').replace('}', '')}",
        "summary": page.title,
        "description": getdoc(page.read) or "",
        "parameters": [_parameter(field, field.name in page.path_parameters) for field in page.fields],
        "responses": {
            "200": {
                "description": "what the page shows",
                "content": _json(schemas.of(get_type_hints(page.read)["return"])),
            },
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _parameter(field: Field, is_in_path: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": field.name, "in": "path" if is_in_path else "query"}
    default = {} if field.default in ("", None) else {"default": field.default}
    found["schema"] = {**field.schema(), **default, **({"minLength": 1} if is_in_path else {})}
    if is_in_path or field.is_required:
        found["required"] = True
    if field.help:
        found["description"] = field.help
    return found


def _action(action: Action, schemas: Schemas) -> dict[str, Any]:
    properties = {field.name: field.schema() for field in action.fields}
    body: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [field.name for field in action.fields if field.is_required]:
        body["required"] = required
    return {
        "operationId": action.name,
        "summary": action.title,
        "description": getdoc(action.run) or "",
        "parameters": [
            {"name": TOKEN_HEADER, "in": "header", "required": True, "schema": {"type": "string"}},
        ],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {
            "200": {"description": "the change was made", "content": _json(schemas.of(Done))},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _session() -> dict[str, Any]:
    answer: dict[str, object] = {
        "type": "object",
        "required": ["user", "csrf_token", "is_read_only"],
        "properties": {
            "user": {"type": "string"},
            "csrf_token": {"type": "string"},
            "is_read_only": {"type": "boolean"},
        },
    }
    return {
        "operationId": "session",
        "summary": "Session",
        "description": "The user of the session, and the token that changes need.",
        "responses": {
            "200": {"description": "the session", "content": _json(answer)},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _json(schema: dict[str, object]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema_ref(name: str) -> str:
    return f"#/components/schemas/{name}"
