"""The URL of the serving database: its secrets come from elsewhere, and no error shows it."""

import pytest

from headrace.pipeline.serving.database_url import parse_url, serving_url
from headrace.pipeline.serving.errors import ServingError

SECRET = "hunter2"


def project(folder, url):
    (folder / "headrace.toml").write_text(f'[serving]\nurl = "{url}"\n')
    return folder


def test_a_url_may_refer_to_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", SECRET)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    for reference in ("${env:DATABASE_PASSWORD}", "${file:password}"):
        found = serving_url(project(tmp_path, f"postgresql://ann:{reference}@db/views"))
        assert found == f"postgresql+psycopg://ann:{SECRET}@db/views"


def test_a_secret_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_PASSWORD", raising=False)
    with pytest.raises(ServingError, match=r"\[serving\] url: .*DATABASE_PASSWORD is not set"):
        serving_url(project(tmp_path, "postgresql://ann:${env:DATABASE_PASSWORD}@db/views"))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql:/ann:{SECRET}@db/views",
        f"postgresql://ann:{SECRET}@db:port/views",
        f"ann:{SECRET}@db",
        f"oracle://ann:{SECRET}@db/views",
    ],
)
def test_an_error_does_not_show_the_password(url, tmp_path):
    for use in (lambda: parse_url(url), lambda: serving_url(project(tmp_path, url))):
        with pytest.raises(ServingError) as refused:
            use()
        assert SECRET not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
