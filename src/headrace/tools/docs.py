"""Writes every page that is made from a registry: ``python -m headrace.tools.docs FOLDER``.

A test compares what is there with what would be written.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headrace.tools import docs_apis, docs_client_options, docs_commands, docs_configs, docs_metrics
from headrace.tools.main import COMMANDS

#: Below the project's folder.
PAGES: dict[str, Callable[[], str]] = {
    "docs/apis.md": docs_apis.render,
    "docs/client-options.md": docs_client_options.render,
    "docs/commands.md": docs_commands.render_index,
    **{f"{docs_commands.FOLDER}/{name}.md": partial(docs_commands.render_command, name) for name in COMMANDS},
    "docs/configs.md": docs_configs.render,
    "docs/metrics.md": docs_metrics.render,
}
README = "README.md"


def wanted(root: Path) -> dict[Path, str]:
    """Each file and what should be in it."""
    pages = {root / path: render() for path, render in PAGES.items()}
    readme = root / README
    pages[readme] = docs_apis.with_table(readme.read_text(encoding="utf-8"))
    return pages


def main(root: Path) -> None:
    for path, text in wanted(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
