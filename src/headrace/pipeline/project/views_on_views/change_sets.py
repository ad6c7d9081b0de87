"""Finds which changes of an ``apply`` follow from others, and which new versions take over together.

A view on views has a new version if the answer of a view that it reads has changed. The new versions of views that
read each other take over together (``switch_sets``), if they replace versions that serve.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.views_on_views.switch_sets import upstream_answers_of
from headrace.pipeline.serving.catalog import Version


def changed_upstream(definition: ViewDefinition, newest: Version) -> tuple[str, ...]:
    """The views that the query names, and whose answers differ from those that the newest version has of them."""
    before = upstream_answers_of(newest)
    return tuple(
        view.name
        for view in definition.views
        if view.name in definition.reads_directly and before.get(view.name, view.answer_hash) != view.answer_hash
    )


def together(because: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each changed view, the other changed views that it takes over with.

    :param because: for each changed view that has a version already, the views whose change it follows from.
    """
    groups = {name: {name} for name in because}
    for name, upstream in because.items():
        for other in upstream:
            if other in groups and groups[other] is not groups[name]:
                merged = groups[name] | groups[other]
                groups.update(dict.fromkeys(merged, merged))
    return {name: tuple(sorted(group - {name})) for name, group in groups.items()}
