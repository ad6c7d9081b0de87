"""Makes JSON schemas of types: what ``encoding.py`` makes of a value of the type."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_PLAIN: dict[Any, dict[str, object]] = {
    str: {"type": "string"},
    bytes: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


class Schemas:
    """The schemas of one document. Classes are ``components``, referred to by their names."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, object]] = {}

    def of(self, kind: Any, chosen: Mapping[Any, Any] | None = None) -> dict[str, object]:
        """
        :param chosen: the types that type variables stand for.
        """
        kind = (chosen or {}).get(kind, kind) if isinstance(kind, TypeVar) else kind
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(each, chosen) for each in arguments]}
        plain_class = origin or kind
        if dataclasses.is_dataclass(plain_class) or hasattr(plain_class, "_fields"):
            return self._of_class(plain_class, arguments, chosen)
        if isinstance(plain_class, type) and issubclass(plain_class, Enum):
            return {"enum": [each.name for each in plain_class]}
        if isinstance(plain_class, type) and issubclass(plain_class, Mapping):
            value = arguments[1] if len(arguments) == 2 else Any
            return {"type": "object", "additionalProperties": self.of(value, chosen)}
        if isinstance(plain_class, type) and issubclass(plain_class, Sequence | Set):
            return self._of_sequence(arguments, chosen)
        return {"type": "string"}

    def _of_sequence(self, arguments: tuple[Any, ...], chosen: Mapping[Any, Any] | None) -> dict[str, object]:
        if len(arguments) > 1 and arguments[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(each, chosen) for each in arguments]}
        return {"type": "array", "items": self.of(arguments[0] if arguments else Any, chosen)}

    def _of_class(self, kind: Any, arguments: tuple[Any, ...], chosen: Mapping[Any, Any] | None) -> dict[str, object]:
        arguments = tuple((chosen or {}).get(each, each) if isinstance(each, TypeVar) else each for each in arguments)
        name = kind.__name__ + "".join(getattr(each, "__name__", "") for each in arguments)
        if name not in self.components:
            self.components[name] = {}  # A class may contain itself.
            variables = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
            hints = get_type_hints(kind)
            is_dataclass = dataclasses.is_dataclass(kind)
            names = [field.name for field in dataclasses.fields(kind)] if is_dataclass else list(kind._fields)
            self.components[name] = {
                "type": "object",
                "required": names,
                "properties": {each: self.of(hints[each], variables) for each in names},
            }
        return {"$ref": f"#/components/schemas/{name}"}
