"""Reads the tables [publish] and [changes] of a view's file: what happens with the changes of the view.

::

    [publish]
    topic = "pages-changes"       # a compacted topic; it is created if it does not exist
    format = "json"               # or avro, which needs registry = "http://127.0.0.1:8081"
                              # and may have registry_options, as [decode]

    [changes]
    always = true                 # follow the view although nobody reads its changes
    keep_changes = 100000         # bounds of the outbox
    keep = "1 hour"
"""

from __future__ import annotations

from headrace.pipeline.project.definition import PUBLISH_FORMATS, ChangeSettings, Publish, ViewDefinition
from headrace.pipeline.project.field_reader import TOPIC, FieldReader
from headrace.pipeline.project.registry_options import read_registry_options
from headrace.pipeline.project.toml_files import TomlFile


def read_publish(fields: FieldReader) -> Publish | None:
    file = fields.file
    section = file.section("publish")
    if "publish" not in file.content:
        return None
    topic = fields.required(section, "topic")
    if topic and not TOPIC.fullmatch(topic):
        section.report("topic", f"{topic!r} is not the name of a topic: use letters, digits, '.', '_' and '-'")
    format_, registry = section.text("format", "json", PUBLISH_FORMATS), section.text("registry")
    made = Publish(topic, format_, registry, read_registry_options(section, "publish", fields.folder))
    if made.format == "avro" and not made.registry:
        section.report("registry", 'avro needs a schema registry: set registry = "http://127.0.0.1:8081"')
    if made.registry and made.format != "avro":
        section.report("registry", f"registry has no effect with the format {made.format}: remove it")
    if made.registry_options and not made.registry:
        section.report("registry_options", "registry_options have no effect without a registry: remove them")
    section.finish()
    return None if "publish" in file.invalid_fields else made


def read_changes(fields: FieldReader) -> ChangeSettings:
    section, standard = fields.file.section("changes"), ChangeSettings()
    keep = section.text("keep")
    keep_ms = fields.duration(section, "keep", keep) if keep else standard.keep_ms
    if keep and keep_ms < 1000 and "changes" not in fields.file.invalid_fields:
        section.report("keep", "changes.keep must be at least 1 second")
    made = ChangeSettings(
        always=section.flag("always", default=standard.always),
        keep_changes=section.whole("keep_changes", standard.keep_changes, at_least=1),
        keep_ms=keep_ms,
    )
    section.finish()
    return made


def check_publish(definition: ViewDefinition, file: TomlFile) -> None:
    """Reports a topic that the view reads: each change of the view would change the view again."""
    if definition.publish is None:
        return
    topic = definition.publish.topic
    senders = {definition.dead_letters, *(source.dead_letters for source in definition.sources)}
    if definition.reads(topic):
        file.report(f"the view reads {topic!r}, and cannot publish its changes there: use another topic",
                    "publish", "topic")  # fmt: skip
    elif topic in senders:
        file.report(f"{topic!r} gets the dead letters of the view: use another topic", "publish", "topic")
