"""Creates a running version in the way in which its answer is kept up to date."""

from __future__ import annotations

from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.running_version import RunningVersion


def create_version(context: RunContext, version: Version) -> RunningVersion:
    """A running version: of the way that the catalog names (``maintenance.ways``), else of the architecture."""
    if version.definition.get("way") == "touched":
        from headrace.pipeline.touched.view import TouchedVersion

        return TouchedVersion(context, version)
    if version.definition.get("way") == "whole":
        from headrace.pipeline.whole.view import WholeVersion

        return WholeVersion(context, version)
    if version.definition["architecture"] == "lambda":
        from headrace.pipeline.lambda_.view import LambdaView

        return LambdaView(context, version)
    from headrace.pipeline.kappa.view import KappaView

    return KappaView(context, version)
