"""``headrace views apply``: checks the files of a project, and makes new versions of changed views.

If there are problems, the command prints them with file and line, and changes nothing. The plan is printed before the
catalog changes.
"""

from __future__ import annotations

from argparse import Namespace

from headrace.pipeline.management.applying import HEADINGS, Plan, apply_project
from headrace.tools.shared.commands import Output, Table, columns


def apply(options: Namespace, out: Output) -> None:
    def show(plan: Plan) -> None:
        rows = plan.rows()
        lines = [line.rstrip() for line in columns(HEADINGS, rows, gap=2)]
        if not rows:
            lines = ["the project has no views; a view is a TOML file in views/"]
        out.show(plan.value(), lines, Table([each.lower() for each in HEADINGS], rows) if rows else None)
        for remark in plan.remarks():
            out.note(remark)

    apply_project(
        options.project, out.note, show=show, switch=options.switch, is_dry_run=options.dry_run, master=options.master
    )
