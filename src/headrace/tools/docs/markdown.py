"""Makes Markdown tables for the pages of ``docs/``."""

from collections.abc import Iterable, Iterator


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, followed by an empty line."""
    yield _row(head)
    yield _row(("---",) * len(head))
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
