"""Reads small files that hold secrets, certificates or tokens: at most a certain number of bytes.

The limit keeps a wrong path, such as that of a log file or of ``/dev/zero``, from filling the memory.
"""

from __future__ import annotations

from pathlib import Path


class UnreadableFileError(ValueError):
    """A file cannot be used. The message says why, and has nothing of the content."""


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """
    :raises UnreadableFileError: if the file cannot be read, or has more than ``max_bytes``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise UnreadableFileError(str(error.strerror)) from None
    if len(content) > max_bytes:
        raise UnreadableFileError(f"it has more than {max_bytes} bytes")
    return content


def read_small_text(path: Path, max_bytes: int) -> str:
    """
    :raises UnreadableFileError: if the file cannot be read, has more than ``max_bytes``, or is not UTF-8 text.
    """
    try:
        return read_small_file(path, max_bytes).decode()
    except UnicodeDecodeError:
        raise UnreadableFileError("it is not UTF-8 text") from None
