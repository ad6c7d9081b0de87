"""References to secrets in the settings of a project."""

import pytest

from headrace.pipeline.project.settings import read_settings
from headrace.pipeline.secret_references import MissingSecret, with_secrets

ENVIRONMENT = {"WORD": "hunter2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${env:WORD}", "hunter2"),
        ('a="${env:WORD}" b="${file:secret.txt}";', 'a="hunter2" b="two\nlines";'),
        ("${other:WORD} $env:WORD {env:WORD}", "${other:WORD} $env:WORD {env:WORD}"),
    ],
)
def test_references(tmp_path, text, expected):
    (tmp_path / "secret.txt").write_text("two\nlines\r\n\n")
    assert with_secrets(text, tmp_path, ENVIRONMENT) == expected


def test_a_secret_is_not_searched_for_references(tmp_path):
    assert with_secrets("${env:A}", tmp_path, {"A": "${env:B}", "B": "b"}) == "${env:B}"


@pytest.mark.parametrize("text", ["${env:NOT_THERE}", "${file:not-there}", "${file:/}", "${file:binary}"])
def test_secrets_that_are_not_there(tmp_path, text):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(MissingSecret) as error:
        with_secrets(f"hunter2 {text}", tmp_path, ENVIRONMENT)
    assert text in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_project_hides_them(tmp_path, monkeypatch):
    monkeypatch.setenv("WORD", "hunter2")
    (tmp_path / "headrace.toml").write_text(
        '[log.options]\nsecurity.protocol = "SASL_SSL"\nsasl.mechanism = "PLAIN"\n"sasl.username" = "alice"\n'
        'sasl.password = "${env:WORD}"\n[serving]\nurl = "postgresql://u:${env:WORD}@h/d"\n'
    )
    _, file, project = read_settings(tmp_path)
    assert file.problems == []
    assert project.log_options["sasl.password"] == "hunter2"
    assert "hunter2" in project.serving_url
    assert "hunter2" not in repr(project)


def test_a_project_reports_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("WORD", raising=False)
    (tmp_path / "headrace.toml").write_text('[log.options]\nsasl.password = "${env:WORD}"\n')
    _, file, _ = read_settings(tmp_path)
    (problem,) = file.problems
    assert "log.options: sasl.password: ${env:WORD}: the variable WORD is not set" in problem.message
