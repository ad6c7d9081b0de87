"""THE registry of routes: methods and paths, the function that answers, and whether it changes something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from headrace.registry.errors import RegistryError
from headrace.registry.http import reads, writes
from headrace.registry.http.calls import Call

Handler = Callable[[Call], Awaitable[Any]]


class Route(NamedTuple):
    """
    :ivar known: answers a request that would change nothing, from the state of any registry; None: ask the leader.
    """

    method: str
    path: str
    handler: Handler
    changes: bool = False
    known: Handler | None = None


ROUTES = (
    Route("GET", "/", reads.root),
    Route("POST", "/", reads.root),
    Route("GET", "/schemas", reads.all_schemas),
    Route("GET", "/schemas/types", reads.types),
    Route("GET", "/schemas/ids/{id}", reads.schema_of_id),
    Route("GET", "/schemas/ids/{id}/schema", reads.text_of_id),
    Route("GET", "/schemas/ids/{id}/subjects", reads.subjects_of_id),
    Route("GET", "/schemas/ids/{id}/versions", reads.versions_with_id),
    Route("GET", "/schemas/guids/{guid}", reads.schema_of_guid),
    Route("GET", "/schemas/guids/{guid}/ids", reads.ids_of_guid),
    Route("GET", "/subjects", reads.all_subjects),
    Route("POST", "/subjects/{subject}", reads.lookup),
    Route("DELETE", "/subjects/{subject}", writes.delete_subject, changes=True),
    Route("GET", "/subjects/{subject}/versions", reads.versions),
    Route("POST", "/subjects/{subject}/versions", writes.register, changes=True, known=reads.registered),
    Route("GET", "/subjects/{subject}/metadata", reads.latest_with_metadata),
    Route("GET", "/subjects/{subject}/versions/{version}", reads.version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", writes.delete_version, changes=True),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", reads.text_of_version),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", reads.referenced_by),
    Route("POST", "/compatibility/subjects/{subject}/versions", reads.check_all),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", reads.check),
    Route("GET", "/config", reads.config),
    Route("PUT", "/config", writes.put_config, changes=True),
    Route("DELETE", "/config", writes.delete_config, changes=True),
    Route("GET", "/config/{subject}", reads.config),
    Route("PUT", "/config/{subject}", writes.put_config, changes=True),
    Route("DELETE", "/config/{subject}", writes.delete_config, changes=True),
    Route("GET", "/mode", reads.mode),
    Route("PUT", "/mode", writes.put_mode, changes=True),
    Route("DELETE", "/mode", writes.delete_mode, changes=True),
    Route("GET", "/mode/{subject}", reads.mode),
    Route("PUT", "/mode/{subject}", writes.put_mode, changes=True),
    Route("DELETE", "/mode/{subject}", writes.delete_mode, changes=True),
    Route("GET", "/contexts", reads.contexts),
    Route("DELETE", "/contexts/{context}", writes.delete_context, changes=True),
    Route("GET", "/v1/metadata/id", reads.clusters),
    Route("GET", "/v1/metadata/version", reads.version_of_registry),
)


class _Node:
    """A part of the tree of paths."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.variable: tuple[str, _Node] | None = None
        self.routes: dict[str, Route] = {}


def _tree() -> _Node:
    root = _Node()
    for route in ROUTES:
        node = root
        for part in route.path.split("/")[1:]:
            if not part:
                continue
            if part.startswith("{"):
                node.variable = node.variable or (part[1:-1], _Node())
                node = node.variable[1]
            else:
                node = node.fixed.setdefault(part, _Node())
        node.routes[route.method] = route
    return root


_ROOT = _tree()


def find_route(method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
    """The route of a path, and the variable parts.

    :raises RegistryError: if there is none.
    """
    node, parts = _ROOT, {}
    for segment in segments:
        following = node.fixed.get(segment)
        if following is None and node.variable is not None:
            name, following = node.variable
            parts[name] = segment
        if following is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        node = following
    if not node.routes:
        raise RegistryError(404, "HTTP 404 Not Found")
    # HEAD is answered as GET; the server leaves the body out.
    route = node.routes.get("GET" if method == "HEAD" else method)
    if route is None:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    return route, parts
