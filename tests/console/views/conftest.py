"""Gives tests a console with a project of views."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from views_project import pages_project


@pytest.fixture
def project(tmp_path, broker):
    folder = tmp_path / "project"
    folder.mkdir()
    project = pages_project(folder, broker.bootstrap_servers)
    yield project
    project.close()


@pytest.fixture
async def console(open_console, project):
    return await open_console(project=project.folder)
