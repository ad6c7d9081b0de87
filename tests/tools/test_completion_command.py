"""completion: scripts that know every command and option; bash's is tried in bash."""

import shutil
import subprocess

import pytest

from headrace.tools.completion import main
from headrace.tools.main import COMMANDS
from headrace.tools.shared.parser_facts import options_of, parser_of


def script(shell, capsys):
    assert main([shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_known(shell, capsys):
    text = script(shell, capsys)
    for name in COMMANDS:
        assert name in text
        for action in options_of(parser_of(name)):
            assert all(option.lstrip("-") in text for option in action.option_strings)


@pytest.fixture
def complete(capsys):
    """What bash offers for the last of some words."""
    text = script("bash", capsys)

    def offered(*words):
        line = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_headrace headrace\n"
        ask += "printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(["bash", "-uc", f"{text}\n{ask}"], capture_output=True, text=True, check=True, timeout=20)
        return done.stdout.split()

    return offered


def test_bash_completes_commands_options_and_values(complete):
    assert complete("headrace", "dump") == ["dump-log"]
    assert set(complete("headrace", "")) == {*COMMANDS}
    assert set(complete("headrace", "--")) == {"--help", "--version"}
    assert complete("headrace", "start", "--li") == ["--listen"]
    assert complete("headrace", "start", "--log-level", "w") == ["warning"]
    assert complete("headrace", "start", "--listen", "") == []
    assert complete("headrace", "completion", "z") == ["zsh"]
    assert complete("headrace", "views", "roll") == ["rollback"]
    assert complete("headrace", "views", "status", "--wa") == ["--watch"]


def test_bash_completes_files(complete, tmp_path, monkeypatch):
    (tmp_path / "some.log").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("headrace", "dump-log", "--files", "so") == ["some.log"]


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_other_shells_can_read_theirs(shell, check, capsys, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(script(shell, capsys))
    subprocess.run([*check, tmp_path / "script"], check=True, timeout=20)


def test_the_shell_is_taken_from_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main([]) == 0
    assert "fish/completions" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("headrace completion: name the shell: bash, zsh, fish, tcsh")
