"""Status names the views that have offsets of their own, and the reasons."""

from __future__ import annotations

import pytest

from headrace.pipeline.management.own_offsets import own_offsets
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import KappaSettings, ViewDefinition
from headrace.pipeline.serving.catalog import DesiredState, Progress, Version, VersionState


def version(name: str, way: str = "combine", trigger_ms: int = 500) -> Version:
    settings = KappaSettings(trigger_ms=trigger_ms)
    definition = ViewDefinition(name, ("clicks",), "", "kappa", FileText("", ""), Decode(), kappa=settings)
    values = definition.as_dict() | {"way": way}
    return Version(name, 1, VersionState.SERVING, DesiredState.RUN, values, "hash", name, None, 0, 0)


def said(*versions: Version, same_offsets: bool = True, **offsets: dict) -> dict[str, str]:
    progress = {
        (name, 1): Progress(name, 1, 1, topics if isinstance(topics, dict) else {"clicks": {0: topics}})
        for name, topics in offsets.items()
    }
    found = own_offsets(versions, progress, same_offsets=same_offsets)
    return {name: why for (name, _), why in found.items()}


def test_views_at_the_same_offsets_need_no_remark():
    assert said(version("pages"), version("users"), pages=7, users=7) == {}


def test_a_view_that_is_behind_is_named_with_one_that_is_further():
    assert said(version("pages"), version("users"), pages=7, users=6) == {
        "users": "it is behind pages v1, and is at its offsets again when it has caught up"
    }


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (version("users", "stream"), "Spark's stream chooses its own offsets"),
        (version("users", "whole"), "its whole answer is computed at offsets of its own"),
        (version("users", trigger_ms=5_000), "its trigger_ms is 5000, more than 1000"),
    ],
    ids=["stream", "whole", "slow"],
)
def test_a_view_that_cannot_take_part_is_named_with_the_reason(other, why):
    assert said(version("pages"), other, pages=7, users=9) == {"users": why}


def test_a_view_without_common_topics_needs_no_remark():
    assert said(version("pages"), version("users", "stream"), pages=7, users={"logins": {0: 3}}) == {}


def test_nothing_is_said_if_the_project_does_not_want_it():
    assert said(version("pages"), version("users", "stream"), pages=7, users=6, same_offsets=False) == {}
