"""What the Numba kernels of the clients share: how they are compiled, and how they touch memory.

Kernels take addresses, not arrays, for what they only read: a fetched answer, an Arrow buffer and a decompressed body
are then all alike, and none is copied or wrapped for it. Whoever calls keeps the memory alive. Nothing checks an
address in here: kernels check every position against the end that they were told before they read it.

Kernels have explicit signatures and ``cache=True``: they are compiled when a process first imports them, about 10 s in
all, and then loaded from the ``__pycache__`` beside the module: 0.3 s, after 0.35 s for ``import numba``. A package
folder that cannot be written makes Numba use the user's cache folder; set ``NUMBA_CACHE_DIR`` for another one, which
many processes on many machines may share if their processors are alike. A module's cache is good until that module
changes: whoever changes a function that kernels of other modules inline touches those modules too. All of them release
the interpreter lock.
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
    """A function compiled for these types and no others, called from Python without the interpreter lock held."""

    def compiled(function: F) -> F:
        try:
            return cast(F, numba.njit(signature, nogil=True, cache=True)(function))
        except RuntimeError as error:  # no folder can be written: compile in every process, then
            warnings.warn(f"kernels are compiled anew in every process, set NUMBA_CACHE_DIR: {error}", stacklevel=2)
            return cast(F, numba.njit(signature, nogil=True)(function))

    return compiled


def inlined(function: F) -> F:
    """A part of a kernel; LLVM puts it in its place."""
    return cast(F, numba.njit(nogil=True)(function))


def _load_byte(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The byte at an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        return builder.zext(builder.load(pointer), arguments[0].type)

    return types.int64(types.int64), generate


def _store_byte(typing_context: Any, address: Any, byte: Any) -> Any:  # noqa: ARG001
    """Write the lowest 8 bits of an int64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        builder.store(builder.trunc(arguments[1], cgutils.int8_t), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _load_word(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """The four bytes at an address, in the machine's order, as int64."""

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
