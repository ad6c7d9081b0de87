"""``headrace views explain``: how a view is kept up to date, why, and what an event costs. It changes nothing."""

from __future__ import annotations

from argparse import Namespace

from headrace.pipeline.management.explaining import explain_project_view
from headrace.tools.shared.commands import Output


def explain(options: Namespace, out: Output) -> None:
    found = explain_project_view(options.project, options.view, out.note, master=options.master)
    out.show(found.value, found.lines())
