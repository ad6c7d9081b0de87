"""``headrace console``: serves the web console of a cluster, until a signal stops it.

The command prints ``ready HOST:PORT`` on standard output when it serves; everything else goes to standard error.
SIGTERM and Ctrl-C end it with exit code 0. A setting that cannot be used and a taken address end it with exit code 2.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.properties import ConfigError
from headrace.tools.shared.commands import DONE, Output, UsageError, client_options, new_parser, read_properties, run
from headrace.tools.shared.http_options import (
    add_http_protection,
    address,
    protection_of,
    require_packages,
    serve_until_signal,
)
from headrace.tools.shared.stderr_log import log_to_stderr

if TYPE_CHECKING:
    from headrace.console.broker_metrics.source import MetricsSettings
    from headrace.console.oidc.settings import OidcSettings
    from headrace.console.settings import Settings

_EXAMPLES = """
headrace console
headrace console --listen 127.0.0.1:8090 --bootstrap-server kafka1:9092,kafka2:9092 --data console-data
headrace console --project views --read-only
headrace console --registry http://127.0.0.1:8081 --mask card_number
headrace console --prometheus http://127.0.0.1:9090 --prometheus-label job=kafka
headrace console --listen 0.0.0.0:8443 --tls-certificate console.pem --command-config client.properties
headrace console --command-config client.properties --oidc oidc.properties
"""
#: The packages of the extra, by a module of each.
_NEEDED = {"jinja2": "jinja2", "starlette": "starlette", "uvicorn": "uvicorn"}
#: The logins that a visitor can make.
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OWN = ("sasl.username", "sasl.password", "sasl.plain.username", "sasl.plain.password", "sasl.jaas.config")
_OWN_OAUTH = ("sasl.oauth", "org.apache.kafka.sasl.oauth", "sasl.jaas.config")


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "console",
        "Serve the web console of a cluster and of a project of views. If the cluster needs SASL, each visitor logs in "
        "with a user of the cluster, or by an OpenID provider.",
        _EXAMPLES,
        prints_json=False,
    )
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", type=address, default=("127.0.0.1", 8080),
        help="the address to listen on (default 127.0.0.1:8080); port 0 picks a free port")  # fmt: skip
    add("--allowed-host", metavar="NAME", action="append", default=[],
        help="a further name that browsers may use for the console, such as a proxy's; may be repeated")  # fmt: skip
    add("--oidc", metavar="FILE", type=Path,
        help="a properties file with the OpenID provider that visitors log in by, if sasl.mechanism is OAUTHBEARER; "
        "its secret may be in HEADRACE_CONSOLE_OIDC_CLIENT_SECRET")  # fmt: skip
    add("--project", metavar="DIR", type=Path, help="the folder of a project of views")
    add("--data", metavar="DIR", type=Path,
        help="a folder for samples and the audit log (default: memory, and audit lines on stderr)")  # fmt: skip
    add("--read-only", action="store_true", help="refuse all changes")
    add("--mask", metavar="NAME", action="append", default=[],
        help="hide the values of fields with this name; may be repeated")  # fmt: skip
    add("--registry", metavar="URL", type=_url,
        help="the schema registry whose schemas records were written with")  # fmt: skip
    _add_metrics(parser)
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default %(default)s")
    add_http_protection(parser)
    return parser


def _add_metrics(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "metrics of the brokers",
        "For requests per second, p99, versions and the use of quotas. HEADRACE_METRICS_BEARER_TOKEN or "
        "HEADRACE_METRICS_BASIC_AUTH of the environment is sent to these addresses, and to no others.",
    )
    group.add_argument("--prometheus", metavar="URL", type=_plain_url,
        help="the Prometheus that scrapes the brokers")  # fmt: skip
    group.add_argument("--prometheus-label", metavar="NAME=VALUE", type=_label, action="append", default=[],
        help="a label that its series have in Prometheus, such as job=kafka; may be repeated")  # fmt: skip
    group.add_argument("--broker-metrics", metavar="URL", type=_plain_url, action="append", default=[],
        help="the metrics endpoint of a broker, instead of a Prometheus; repeat it for each broker")  # fmt: skip


def _work(options: Namespace, _: Output) -> int:
    require_packages("console", _NEEDED)
    if options.project is not None and not options.project.is_dir():
        raise UsageError(f"--project {options.project}: there is no such folder")
    log_to_stderr(options.log_level.upper(), suffix=" (%(name)s)")
    try:
        settings = _settings(options)
        serve_until_signal(_serve(settings))
    except ConfigError as error:
        raise UsageError("; ".join(error.problems)) from None
    return DONE


def _settings(options: Namespace) -> Settings:
    from headrace.client.config import AdminConfig
    from headrace.console.settings import Settings

    in_file = {} if options.command_config is None else AdminConfig.select(read_properties(options.command_config))
    needs_login = in_file.get("security.protocol", "").strip().upper().startswith("SASL_")
    mechanism = in_file.get("sasl.mechanism", "").strip().upper() if needs_login else ""
    oidc = _oidc(options, mechanism)
    if needs_login and oidc is None and mechanism not in _MECHANISMS:
        raise UsageError(
            f"sasl.mechanism = {mechanism!r}: a visitor can log in by {', '.join(_MECHANISMS)}, or by OAUTHBEARER with "
            "--oidc"
        )
    has_own_login = any(map(_is_login, in_file))
    checked: dict[str, object] = {}
    if needs_login and not has_own_login:
        checked = {"sasl.username": "-", "sasl.password": "-"}
        if oidc is not None:
            checked = {"sasl.oauth.token.provider": lambda: "-"}
    clients = client_options(options, AdminConfig, checked)
    shared = {name: value for name, value in clients.items() if not _is_login(name)} if needs_login else clients
    host, port = options.listen
    return Settings(
        host=host,
        port=port,
        clients=shared,
        sampler=clients if has_own_login else None,
        needs_login=needs_login,
        oidc=oidc,
        project=options.project,
        data=options.data,
        is_read_only=options.read_only,
        masks=tuple(options.mask),
        registry=options.registry or "",
        metrics=_metrics(options),
        allowed_hosts=tuple(options.allowed_host),
        protection=protection_of(options, os.environ),
    )


def _is_login(name: str) -> bool:
    """Whether an option of a client says who logs in."""
    return name in _OWN or name.startswith(_OWN_OAUTH)


def _oidc(options: Namespace, mechanism: str) -> OidcSettings | None:
    """
    :param mechanism: how visitors log in at the brokers; empty if they do not.
    """
    if options.oidc is None:
        return None
    from headrace.console.oidc.settings import read_oidc
    from headrace.console.protection.hosts import Hosts

    if mechanism != "OAUTHBEARER":
        raise UsageError("--oidc needs --command-config with security.protocol=SASL_SSL and sasl.mechanism=OAUTHBEARER")
    found = read_oidc(options.oidc, os.environ)
    name = found.redirect_origin.partition("://")[2]
    if not Hosts(options.listen[0], options.allowed_host).allows(name):
        raise UsageError(f"{options.oidc}: the console does not answer to {name} of redirect.url; add --allowed-host")
    return found


def _metrics(options: Namespace) -> MetricsSettings:
    from headrace.console.broker_metrics.source import MetricsSettings
    from headrace.http_endpoints.access import read_access

    if options.prometheus and options.broker_metrics:
        raise UsageError("give --prometheus or --broker-metrics, not both")
    if options.prometheus_label and not options.prometheus:
        raise UsageError("--prometheus-label needs --prometheus")
    access = read_access(
        None,
        None,
        os.environ,
        bearer_variable="HEADRACE_METRICS_BEARER_TOKEN",
        basic_variable="HEADRACE_METRICS_BASIC_AUTH",
    )
    labels = dict(options.prometheus_label)
    return MetricsSettings(options.prometheus or "", labels, tuple(dict.fromkeys(options.broker_metrics)), access)


async def _serve(settings: Settings) -> None:
    from headrace.console.server import serve

    await serve(settings)


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r} is not http://HOST:PORT")
    return text


def _plain_url(text: str) -> str:
    """An address without secrets, which other users of the host could read, and without a query."""
    try:
        parts = urlsplit(_url(text))
        is_good = bool(parts.hostname) and parts.port != 0 and text.isascii() and text.isprintable() and " " not in text
    except ValueError:
        is_good = False
    if not is_good or "@" in parts.netloc or parts.query or parts.fragment:
        raise ArgumentTypeError(f"{text!r} is not http://HOST:PORT/PATH without user, password, query and fragment")
    return text


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
