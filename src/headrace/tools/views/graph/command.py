"""``headrace views graph``: prints the sources and views of a project, their versions, freshness and lag.

The command reads the files, the catalog and the ends of the log. It needs neither Spark nor a runner. If the log does
not answer, the lag is missing. A project whose files have problems is drawn as far as the files can be used.
"""

from __future__ import annotations

import json
from argparse import Namespace

from headrace.pipeline.management.graph.model import Graph, graph_of
from headrace.pipeline.management.graph.svg import svg_text
from headrace.pipeline.management.progress import open_log, read_progress
from headrace.pipeline.project.loading import read_project
from headrace.runtime.clock import SystemClock
from headrace.tools.shared.commands import Output
from headrace.tools.views.command import open_project
from headrace.tools.views.graph.text import mermaid_lines, text_lines


def graph(options: Namespace, out: Output) -> None:
    draft = read_project(options.project)
    with open_project(options) as here, open_log(here.project) as log:
        progress = read_progress(here, log, None)
    found = graph_of(draft.project.views, draft.project.sources, progress, SystemClock().wall_ms())
    value = found.value()
    if options.format == "json":
        out.show(value, [json.dumps(value)])
    else:
        out.show(value, _lines(found, options.format))
    if options.format == "text":
        for view in found.views:
            for version in view.versions:
                if version.trouble:
                    out.note(f"{view.name} v{version.version} {version.trouble}")
    if draft.problems:
        out.note(f"the files have {len(draft.problems)} problems, which 'headrace views apply' prints")


def _lines(found: Graph, form: str) -> list[str]:
    if form == "svg":
        return [svg_text(found)]
    return mermaid_lines(found) if form == "mermaid" else text_lines(found)
