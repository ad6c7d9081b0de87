"""Every parameter of a handler is a service: a field of ``Services`` with the same name and the same type."""

import ast
import inspect

import pytest

from headrace.broker import services
from headrace.broker.network.handler_binding import load_handler, served_apis, service_names
from headrace.protocol.api import Api

APIS = served_apis(in_cluster=True)


def qualified_types(module, annotations):
    """The annotations with each imported name written in full. Types are imported for the type checker only, so they
    are not attributes of the module."""
    tree = ast.parse(inspect.getsource(module))
    origins = {
        alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    own = {node.name: f"{module.__name__}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    return {name: _qualified(text, {**own, **origins}) for name, text in annotations.items()}


def _qualified(annotation, origins):
    tree = ast.parse(annotation, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = origins.get(node.id, node.id)
    return ast.unparse(tree)


SERVICES = qualified_types(
    services, {name: type_.__forward_arg__ for name, type_ in services.Services.__annotations__.items()}
)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.label)
def test_a_handler_asks_for_services_by_name_and_type(api):
    handle = load_handler(api)
    asked = {name: handle.__annotations__[name] for name in service_names(handle)}
    types = qualified_types(inspect.getmodule(handle), asked)
    assert types == {name: SERVICES.get(name, "no such service") for name in asked}


def test_a_handler_has_a_request_first_and_nothing_else():
    for api in APIS:
        parameters = inspect.signature(load_handler(api)).parameters
        assert next(iter(parameters)) == "request", api.label
        assert all(one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty for one in parameters.values())


def test_every_service_is_asked_for():
    asked = {name for api in APIS for name in service_names(load_handler(api))}
    assert set(SERVICES) - asked == set()


def test_types_are_compared_by_their_modules():
    assert _qualified("Purgatory[tuple[str, int]]", {"Purgatory": "a.Purgatory"}) == "a.Purgatory[tuple[str, int]]"
    assert Api.PRODUCE in APIS
