"""Computes crc32c, with the package of that name.

The package's own ``__init__`` looks up its version with ``importlib.metadata``, which would make each start 20 ms
slower. So only its extension module is loaded.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _load_extension() -> object:
    package = PathFinder.find_spec("crc32c")
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    spec = PathFinder.find_spec("_crc32c", folders)
    if spec is None or spec.loader is None:
        raise ImportError("the package crc32c has no extension module _crc32c")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    try:
        crc32c = _load_extension()
    except ImportError:  # a version of the package with another layout
        from crc32c import crc32c
