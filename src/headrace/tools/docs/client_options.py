"""Makes ``docs/client-options.md`` from the tables of the clients' options; ``script/generate-docs`` calls it."""

from collections.abc import Iterable, Iterator

from headrace.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from headrace.client.option_types import Option
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Client options

<!-- Made by script/generate-docs from src/headrace/client/config.py. Do not edit. -->

Names and defaults are those of Java's clients. Times are in milliseconds. Give an option by its Python name,
`Producer(linger_ms=20)`, or by Kafka's name in a dict, `Producer(config={"linger.ms": 20})`. See the [client
guide](clients.md).
"""
_KINDS: dict[str, type[ClientConfig]] = {"Producer": ProducerConfig, "Consumer": ConsumerConfig, "Admin": AdminConfig}


def render() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    shared = {option.name: option for option in ClientConfig.options()}
    yield "## All\n"
    yield from _table(shared.values())
    for name, kind in _KINDS.items():
        yield f"## {name}\n"
        yield from _table(option for option in kind.options() if shared.get(option.name) != option)


def _table(options: Iterable[Option]) -> Iterator[str]:
    rows = map(_row, sorted(options, key=lambda option: option.name))
    yield from table(("Option", "In Python", "Type", "Default", "What it does"), rows)


def _row(option: Option) -> tuple[str, ...]:
    return f"`{option.name}`", f"`{option.python_name}`", option.type, _shown(option.default), option.doc


def _shown(default: object) -> str:
    if default is None or default == ():
        return "not set"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{text}`" if text else "empty"
