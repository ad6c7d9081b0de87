"""Pages made from registries are up to date, and leave nothing out."""

import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from headrace.broker.metrics.families import FAMILIES
from headrace.pipeline.version import metrics as pipeline_metrics
from headrace.protocol.api import Api
from headrace.tools.docs import apis as docs_apis
from headrace.tools.docs import commands as docs_commands
from headrace.tools.docs import metrics as docs_metrics
from headrace.tools.docs.pages import PAGES, README, wanted
from headrace.tools.main import COMMANDS, main
from headrace.tools.shared.parser_facts import options_of, parser_of, subcommands_of

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
    assert all(f"`{family.name}`" in page for family in (*FAMILIES, *pipeline_metrics.FAMILIES))


def test_every_command_has_a_page_and_no_page_is_left_of_a_command_that_is_gone():
    pages = sorted(path.stem for path in (ROOT / docs_commands.FOLDER).iterdir())
    assert pages == sorted(COMMANDS), "run script/generate-docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_on_its_page(name):
    page = docs_commands.render_command(name)
    parser = parser_of(name)
    assert page.startswith(f"# headrace {name}\n")
    for each in (parser, *subcommands_of(parser).values()):
        for action in options_of(each):
            assert all(option in page for option in action.option_strings)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_takes(name):
    epilog = parser_of(name).epilog
    assert epilog is not None
    heading, *lines = epilog.strip().splitlines()
    assert heading == "examples:"
    examples = [line for line in lines if "headrace" in line]  # others show what is in a file
    assert examples
    for example in examples:
        parser_of(name).parse_args(_words(example.split(f"headrace {name}", 1)[1]))


def _words(line):
    """What a shell would make of it, up to the end of the command."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(takewhile(lambda word: not set(word) <= set("|<>();&"), words))


def test_the_list_of_commands_needs_no_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["headrace", "--help"])
    monkeypatch.setattr("headrace.tools.main.import_module", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_a_command_that_is_not_there_is_told_with_the_nearest(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["headrace", "dumplog"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("headrace: there is no command 'dumplog'; did you mean dump-log?\n")


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
