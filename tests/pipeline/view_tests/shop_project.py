"""A project of a shop: orders, customers, and views over them, for tests of tests of views."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.project.loading import read_project
from headrace.pipeline.view_tests.documents import Document, read_document
from headrace.pipeline.view_tests.reading import read_tests

FILES = {
    "headrace.toml": '[log]\nbootstrap = "127.0.0.1:1"\n',
    "sources/orders.toml": """
        topics = ["orders"]
        [decode]
        format = "json"
        schema = "order_id BIGINT, customer_id BIGINT, amount BIGINT, at TIMESTAMP"
        """,
    "sources/customers.toml": """
        topics = ["customers"]
        kind = "table"
        [decode]
        format = "json"
        schema = "name STRING, country STRING"
        [decode.key]
        format = "json"
        schema = "customer_id BIGINT"
        """,
    "sources/lines.toml": """
        pattern = "lines-.*"
        [decode]
        format = "csv"
        schema = "id BIGINT, price DECIMAL(10,2), day DATE"
        """,
    "views/revenue.toml": 'architecture = "lambda"\nquery = "revenue.sql"\n',
    "views/revenue.sql": """
        SELECT c.country, sum(o.amount) AS total
        FROM orders o JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.country
        """,
    "views/spending.toml": 'architecture = "kappa"\nquery = "spending.sql"\n',
    "views/spending.sql": "SELECT customer_id, sum(amount) AS total, max(at) AS last FROM orders GROUP BY customer_id",
    "views/lines.toml": 'architecture = "kappa"\nquery = "lines.sql"\nkey = ["id"]\n',
    "views/lines.sql": "SELECT id, price, day FROM lines",
}


def make_shop(folder: Path, **tests: str) -> Path:
    """:param tests: by the name of a file in ``tests/``, its text."""
    others = {f"tests/{name}.toml": text for name, text in tests.items()}
    for name, text in {**FILES, **others}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read(folder: Path, text: str, name: str = "revenue.toml"):
    """The tests of a file with this text, and the file."""
    path = make_shop(folder) / "tests" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    document = read_document(path)
    return read_tests(document, read_project(folder).project.views), document


def told(document: Document) -> list[str]:
    """The mistakes of a file, with their lines."""
    return [f"{problem.line}: {problem.message}" for problem in document.problems]
