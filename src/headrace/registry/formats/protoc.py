"""Compiles ``.proto`` texts to descriptors with Google's compiler, which the package grpcio-tools contains.

A process runs the compiler: 60 ms per schema, and a text that makes the compiler crash or wait does not stop the
registry. The compiler sees the text, the descriptors of its references, and the well-known types; no other file of the
host. A parser in Python was considered: the ones that exist read the syntax only, and resolve no types.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.registry.formats.parsing import InvalidSchema, NotParsedInTime

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

#: The name of the compiled file. No reference may have it.
FILE_NAME = "headrace-registry-schema.proto"
_TIMEOUT_S = 20
_PROGRAM = (
    "import os, sys; from grpc_tools._protoc_compiler import run_main; "
    "sys.exit(run_main([os.fsencode(each) for each in sys.argv]))"
)
_MAX_MESSAGE = 500


def compile_text(text: str, dependencies: Iterable[FileDescriptorProto]) -> FileDescriptorProto:
    """
    :raises InvalidSchema: if the text is not a Protobuf schema.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory(prefix="headrace-protoc-") as name:
        folder = Path(name)
        sources = folder / "sources"
        sources.mkdir()
        try:
            (sources / FILE_NAME).write_text(text, encoding="utf-8")
        except UnicodeEncodeError:
            raise InvalidSchema("it is not Unicode text") from None
        (folder / "dependencies").write_bytes(FileDescriptorSet(file=list(dependencies)).SerializeToString())
        result = _run(
            [
                f"--descriptor_set_in={folder / 'dependencies'}",
                f"-I{sources}",
                *(f"-I{path}" for path in _includes()),
                f"--descriptor_set_out={folder / 'compiled'}",
                FILE_NAME,
            ]
        )
        if result.returncode != 0:
            raise InvalidSchema(_message(result.stderr))
        compiled = FileDescriptorSet.FromString((folder / "compiled").read_bytes())
    return compiled.file[-1]


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotParsedInTime(f"protoc did not finish within {_TIMEOUT_S} s") from None


def _includes() -> list[Path]:
    """The folders with Google's own ``.proto`` files: the well-known types, and google/type if it is installed."""
    found: list[Path] = []
    for package, folder in (("grpc_tools", "_proto"), ("google.type", "../..")):
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:
            continue
        places = (spec.submodule_search_locations if spec is not None else None) or ()
        found += [(Path(place) / folder).resolve() for place in places]
    return found


def _message(errors: str) -> str:
    lines = [line.partition(FILE_NAME + ":")[2] or line for line in errors.splitlines() if "warning:" not in line]
    return f"it is not a Protobuf schema: {'; '.join(lines)[:_MAX_MESSAGE]}"
