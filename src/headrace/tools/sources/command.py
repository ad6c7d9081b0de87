"""``headrace sources``: writes the file of a source from the records of a topic, and compares files with records."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.tools.shared.commands import FAILED, CommandError, Output, UsageError, new_parser, run

if TYPE_CHECKING:
    from headrace.pipeline.inference.guess import Guess
    from headrace.pipeline.project.settings import Project

_EXAMPLES = """
headrace sources infer orders
headrace sources infer shop.customers --name customers --kind changes --records 5000
headrace sources infer payments --registry http://registry:8081 --force
headrace sources check
"""
_KINDS = ("events", "table", "changes")


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "sources",
        "Write and check the sources of a project: what the queries of its views can name in FROM.",
        _EXAMPLES,
        connects=False,
        prints_json=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    purpose = "look at the newest records of a topic, and write the file of a source for it"
    infer = commands.add_parser("infer", help=purpose, description=f"{purpose.capitalize()}.", allow_abbrev=False)
    infer.add_argument("topic", metavar="TOPIC", help="the topic")
    infer.add_argument("--name", help="the name of the source (default: the topic's name, with _ for other letters)")
    infer.add_argument("--kind", choices=_KINDS, help="the kind of the source (default: guessed)")
    infer.add_argument("--registry", metavar="URL", help="a schema registry that knows the ids in the records")
    infer.add_argument("--force", action="store_true", help="replace the file if it exists")
    purpose = "compare the sources of a project with the newest records of their topics"
    check = commands.add_parser("check", help=purpose, description=f"{purpose.capitalize()}.", allow_abbrev=False)
    check.add_argument("names", metavar="NAME", nargs="*", help="the sources (default: all)")
    for each in (infer, check):
        each.add_argument("--records", type=int, default=1000, help="how many records to look at (default %(default)s)")
        each.add_argument(
            "--project", metavar="DIR", default=".", help="the project's folder (default: the current folder)"
        )
        each.add_argument("--json", action="store_true", help="results as JSON")
    return parser


def _work(options: Namespace, out: Output) -> int | None:
    if options.records < 1:
        raise UsageError("--records must be at least 1")
    try:
        from headrace.pipeline.project.loading import load_settings
        from headrace.pipeline.project.toml_files import ProjectError
    except ImportError as error:
        raise CommandError(f"sources need more packages: pip install 'headrace[spark]' ({error})") from None
    try:
        project = load_settings(options.project)
        return _infer(project, options, out) if options.command == "infer" else _check(project, options, out)
    except ProjectError as error:
        raise CommandError(str(error)) from None


# -------------------------------------------------------------------------------------------------------------- infer


def _infer(project: Project, options: Namespace, out: Output) -> int | None:
    from headrace.pipeline.inference.guess import guess
    from headrace.pipeline.inference.source_text import source_text
    from headrace.tools.sources.records import newest_records

    name = options.name or re.sub(r"\W", "_", options.topic)
    if not re.fullmatch(r"[A-Za-z_]\w{0,62}", name, re.ASCII):
        raise UsageError(f"{name!r} cannot be the name of a source: choose one with --name")
    file = project.folder / "sources" / f"{name}.toml"
    if file.exists() and not options.force:
        raise CommandError(f"{file} exists: replace it with --force, or choose another name with --name")
    records = newest_records(project, options.topic, options.records)
    try:
        guessed = guess(records, is_compacted=_is_compacted(project, options.topic))
    except ValueError as error:
        raise CommandError(f"{options.topic}: {error}") from None
    guessed.kind = options.kind or guessed.kind
    if options.registry:
        _add_registry(guessed, options, file, records)
    file.parent.mkdir(exist_ok=True)
    file.write_text(source_text(options.topic, guessed, record_count=len(records)), encoding="utf-8")
    value = {"file": str(file), "kind": guessed.kind, "decode": guessed.fields, "key": guessed.key_fields,
             "records": len(records), "notes": guessed.notes}  # fmt: skip
    shown = [f"{options.topic}: {len(records)} records, kind {guessed.kind}, format {guessed.fields['format']}"]
    out.show(value, [*shown, *guessed.notes, f"wrote {file}; a query can now read FROM {name}"])
    return None


def _is_compacted(project: Project, topic: str) -> bool:
    from headrace import Admin
    from headrace.client.admin.types import ConfigResource
    from headrace.tools.sources.records import client_config

    with Admin(client_config(project)) as admin:
        resource = ConfigResource("topic", topic)
        entries = admin.describe_configs([resource])[resource]
    if isinstance(entries, HeadraceError):  # no right to see them
        return False
    return "compact" in str(entries["cleanup.policy"].value)


def _add_registry(
    guessed: Guess, options: Namespace, file: Path, records: list[tuple[bytes | None, bytes | None]]
) -> None:
    """The schema that the newest record was written with becomes the schema that all records are read with."""
    from headrace.pipeline.decoding.registry import RegistryUnavailable, SchemaRegistry, UnknownSchema, schema_id_of
    from headrace.pipeline.inference.json_schema import json_schema_columns

    newest = next(value for _, value in reversed(records) if value is not None)
    try:
        found = SchemaRegistry(options.registry).schema(schema_id_of(newest))
    except (RegistryUnavailable, UnknownSchema, ValueError) as error:
        raise CommandError(str(error)) from None
    guessed.notes = [note for note in guessed.notes if "--registry" not in note]
    guessed.fields["registry"] = options.registry
    if found.kind == "AVRO":
        schema = file.with_suffix(".avsc")
        if schema.exists() and not options.force:
            raise CommandError(f"{schema} exists: replace it with --force")
        schema.parent.mkdir(exist_ok=True)
        schema.write_text(found.text + "\n", encoding="utf-8")
        guessed.fields |= {"format": "avro", "schema": schema.name}
        if not options.kind and '"after"' in found.text and '"op"' in found.text:
            guessed.kind = "changes"
    elif found.kind == "PROTOBUF":
        guessed.fields |= {"format": "protobuf", "descriptor": f"{file.stem}.desc", "message": "PACKAGE.MESSAGE"}
        guessed.notes.append(
            f"write {file.stem}.desc with protoc --include_imports --descriptor_set_out, and set the message"
        )
    elif found.kind == "JSON" and guessed.kind != "changes":
        try:
            guessed.fields |= {"format": "json", "schema": json_schema_columns(found.text)}
        except ValueError as error:
            guessed.notes.append(f"the columns are those of the records: {error}")


# -------------------------------------------------------------------------------------------------------------- check


def _check(project: Project, options: Namespace, out: Output) -> int | None:
    from headrace.pipeline.inference.guess import drift
    from headrace.pipeline.project.loading import read_project
    from headrace.pipeline.project.toml_files import ProjectError, did_you_mean
    from headrace.tools.sources.records import newest_records

    draft = read_project(options.project)
    of_sources = [each for each in draft.problems if each.file.parent.name == "sources"]
    if of_sources:
        raise ProjectError(of_sources)
    sources = draft.project.sources
    for name in options.names:
        if name not in sources:
            raise UsageError(f"there is no source {name}{did_you_mean(name, sources)}")
    lines, found = [], []
    for source in (sources[name] for name in options.names or sorted(sources)):
        if source.decode.format != "json" or source.pattern:
            lines.append(f"{source.name}: not compared, because only JSON of named topics is")
            continue
        records = [each for topic in source.topics for each in newest_records(project, topic, options.records)]
        missing, new = drift(source.decode.schema, records, is_framed=source.decode.framing == "confluent")
        found.append({"source": source.name, "records": len(records), "missing": missing, "new": new})
        lines += [f"{source.name}: the column {name} is in none of {len(records)} records" for name in missing]
        lines += [f"{source.name}: the records have a field {name} {kind}, and the schema does not" for name, kind in
                  new.items()]  # fmt: skip
        if not missing and not new:
            lines.append(f"{source.name}: the schema has the fields of {len(records)} records")
    out.show({"sources": found}, lines)
    return FAILED if any(each["missing"] for each in found) else None
