"""Says what an event costs in a view that is maintained by touched keys, from the operators of its query."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.pipeline.maintenance.costs import duration_text, late_text
from headrace.pipeline.maintenance.ways import Cost
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.touched.operators import Input, Keyed, Leaf, Operator, Tree
from headrace.pipeline.touched.source_decoder import IN_DRIVER

_NAMES = {"Aggregate": "groups", "Window": "window functions", "Join": "join", "Limit": "LIMIT"}


def reason_for_touching(tree: Tree) -> str:
    """Why touched keys are exact for the query."""
    parts = [_described(each) for each in tree.keyed]
    if not parts:
        return "each of its rows depends on one row of a source"
    return f"what a new row changes is known by its keys: {'; '.join(parts)}"


def cost_of_touching(definition: ViewDefinition, tree: Tree) -> Cost:
    decoded = sum(source.decode.format not in IN_DRIVER for source in definition.inputs)
    jobs = len(tree.leaves) + len(tree.keyed) + decoded
    without_key = [_named(each) for each in tree.keyed if not each.has_key and each.inputs[0].groups is None]
    work = f"a micro-batch needs at most {jobs} small Spark job{'' if jobs == 1 else 's'}, of one task each. "
    work += "It reads the kept rows of the keys that have new rows, and computes these keys again"
    if without_key:
        names = " and ".join(without_key)
        work += f". Without a key: {names}, so every micro-batch computes all of its rows again"
    work += late_text(definition)
    return Cost(
        records_read=3 if definition.architecture == "lambda" else 1,
        reads=_reads(definition),
        jobs=jobs,
        work=work,
        state=_state(tree),
    )


def _reads(definition: ViewDefinition) -> str:
    if definition.architecture == "kappa":
        return "by its micro-batch"
    every = definition.lambda_.batch_every_ms
    batch = f"each batch, {duration_text(every)} after the last one" if every else "each batch that is asked for"
    return f"by its micro-batch, by the copy to the archive (once for all views), and from the archive by {batch}"


def _state(tree: Tree) -> str:
    if not tree.inputs:
        return "nothing besides the answer and the offsets"
    return f"in the serving database, {', '.join(map(_kept, tree.inputs))}"


def _kept(target: Input) -> str:
    rows = f"{_sources(target)}{'' if target.time is None else ' that [keep] keeps'}"
    if target.groups is not None:
        sums = len(target.columns) - target.groups
        return f"{sums} sum{'' if sums == 1 else 's'} per group of {rows}"
    count = len(target.columns)
    return f"{count} column{'' if count == 1 else 's'} of each row of {rows}"


def _described(operator: Keyed) -> str:
    first = operator.inputs[0]
    keys = ", ".join(first.key_texts or (str(each.sql()) for each in first.keys))
    return f"{_named(operator)} by {keys}" if keys else f"{_named(operator)} without a key"


def _named(operator: Keyed) -> str:
    name = _NAMES.get(operator.how, operator.how)
    return f"{name} of {' and '.join(_sources(each) for each in operator.inputs)}" if operator.how == "Join" else name


def _sources(target: Input) -> str:
    return " and ".join(dict.fromkeys(_leaves(target.operators()))) or "the query"


def _leaves(operators: Iterable[Operator]) -> list[str]:
    found: list[str] = []
    for each in operators:
        if isinstance(each, Leaf):
            found.append(each.source)
        elif isinstance(each, Keyed):
            found += [name for target in each.inputs for name in _leaves(target.operators())]
    return found
