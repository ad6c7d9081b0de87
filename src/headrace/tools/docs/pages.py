"""Lists every page that is made from a registry, with its text. A test compares the list with ``docs/``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from headrace.tools.docs import apis, authorization, client_metrics, client_options, commands, configs, metrics
from headrace.tools.main import COMMANDS

#: Paths relative to the project's folder.
PAGES: dict[str, Callable[[], str]] = {
    "docs/apis.md": apis.render,
    "docs/authorization.md": authorization.render,
    "docs/client-metrics.md": client_metrics.render,
    "docs/client-options.md": client_options.render,
    "docs/commands.md": commands.render_index,
    **{f"{commands.FOLDER}/{name}.md": partial(commands.render_command, name) for name in COMMANDS},
    "docs/configs.md": configs.render,
    "docs/metrics.md": metrics.render,
}
README = "README.md"


def wanted(root: Path) -> dict[Path, str]:
    """Each file with its text."""
    pages = {root / path: render() for path, render in PAGES.items()}
    readme = root / README
    pages[readme] = apis.with_table(readme.read_text(encoding="utf-8"))
    return pages
