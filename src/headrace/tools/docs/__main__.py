"""Writes every page that is made from a registry: ``python -m headrace.tools.docs FOLDER``."""

import sys
from pathlib import Path

from headrace.tools.docs.pages import wanted


def main(root: Path) -> None:
    for path, text in wanted(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
