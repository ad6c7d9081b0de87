"""Pages made from registries are up to date, and leave nothing out."""

from importlib import import_module
from pathlib import Path

import pytest

from headrace.broker.metrics_families import FAMILIES
from headrace.protocol.api import Api
from headrace.tools import docs_apis, docs_commands, docs_metrics
from headrace.tools.docs import PAGES, README, wanted
from headrace.tools.main import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", [*PAGES, README])
def test_a_page_is_what_its_registry_makes(page):
    assert (ROOT / page).read_text(encoding="utf-8") == wanted(ROOT)[ROOT / page], "run script/generate-docs"


def test_every_api_is_in_one_area():
    apis = [api for area in docs_apis.AREAS.values() for api in area]
    assert sorted(apis) == sorted(Api)


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.label)
def test_every_api_says_what_it_is_for(api):
    assert docs_apis.purpose_of(api)


def test_every_metric_is_documented():
    page = docs_metrics.render()
    assert all(f"`{family.name}`" in page for family in FAMILIES)


def test_every_command_and_option_is_documented():
    page = docs_commands.render()
    for name, (module, _) in COMMANDS.items():
        assert f"## headrace {name}\n" in page
        for action in import_module(module).parser()._actions:
            assert action.dest == "help" or all(option in page for option in action.option_strings)


def test_only_what_is_between_the_marks_changes():
    readme = f"before\n{docs_apis.BEGIN}\nold\n{docs_apis.END}\nafter\n"
    made = docs_apis.with_table(readme)
    assert made.startswith("before\n")
    assert made.endswith("\nafter\n")
    assert "old" not in made
    assert docs_apis.with_table(made) == made


@pytest.mark.parametrize("readme", ["", docs_apis.BEGIN, docs_apis.END + docs_apis.BEGIN])
def test_a_readme_without_both_marks_is_refused(readme):
    with pytest.raises(ValueError, match="must have"):
        docs_apis.with_table(readme)
