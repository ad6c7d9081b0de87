"""Compiles the Numba kernels, and gives them access to memory.

Kernels take addresses, not arrays, for memory that they only read. So a fetched response, an Arrow buffer and a
decompressed batch are handled alike, and none of them is copied or wrapped. The caller keeps the memory alive. The
functions here do not check an address: the kernels check every position against the end of the memory before they read.

Kernels have explicit signatures and ``cache=True``. They are compiled when a process first imports them, which takes
about 10 s in all. After that they are loaded from the ``__pycache__`` folder beside the module, which takes 0.3 s, plus
0.35 s for ``import numba``. If that folder cannot be written, Numba uses the user's cache folder. ``NUMBA_CACHE_DIR``
sets another folder, which processes on several machines may share if the processors are alike. The cache of a module is
valid until that module changes. So a change of a function that kernels of other modules inline must touch those modules
too. All kernels release the interpreter lock.
"""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., object])


def kernel(signature: str) -> Callable[[F], F]:
    """Compiles a function for these types only. It releases the interpreter lock while it runs."""

    def compiled(function: F) -> F:
        try:
            return cast(F, numba.njit(signature, nogil=True, cache=True)(function))
        except RuntimeError as error:  # No cache folder can be written, so every process compiles.
            warnings.warn(
                f"the kernels are compiled again in every process; set NUMBA_CACHE_DIR to avoid that: {error}",
                stacklevel=2,
            )
            return cast(F, numba.njit(signature, nogil=True)(function))

    return compiled


def inlined(function: F) -> F:
    """Compiles a part of a kernel. LLVM inlines it."""
    return cast(F, numba.njit(nogil=True)(function))


def _load_byte(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """Returns the byte at an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        return builder.zext(builder.load(pointer), arguments[0].type)

    return types.int64(types.int64), generate


def _store_byte(typing_context: Any, address: Any, byte: Any) -> Any:  # noqa: ARG001
    """Writes the lowest 8 bits of an int64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        builder.store(builder.trunc(arguments[1], cgutils.int8_t), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _load_word(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """Returns the four bytes at an address, in the machine's byte order, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer = builder.inttoptr(arguments[0], cgutils.int32_t.as_pointer())
        return builder.zext(builder.load(pointer, align=1), arguments[0].type)

    return types.int64(types.int64), generate


def _copy_bytes(typing_context: Any, target: Any, source: Any, size_bytes: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        to_pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        from_pointer = builder.inttoptr(arguments[1], cgutils.voidptr_t)
        cgutils.raw_memcpy(builder, to_pointer, from_pointer, arguments[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


load_byte = cast(Callable[[int], int], intrinsic(_load_byte))
store_byte = cast(Callable[[int, int], None], intrinsic(_store_byte))
load_word = cast(Callable[[int], int], intrinsic(_load_word))
copy_bytes = cast(Callable[[int, int, int], None], intrinsic(_copy_bytes))
