"""The options of commands that serve HTTP: TLS and credentials."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.http_endpoints.protection import Protection


def add_http_protection(parser: ArgumentParser) -> None:
    """Adds the options. Secrets are never arguments: other users of the host can read arguments."""
    group = parser.add_argument_group(
        "protection of HTTP",
        "An address that other hosts can reach needs TLS, and a token or a password. Without the files, "
        "HEADRACE_HTTP_BEARER_TOKEN and HEADRACE_HTTP_BASIC_AUTH of the environment are used.",
    )
    group.add_argument("--tls-certificate", metavar="FILE", help="serve HTTPS with this certificate chain (PEM)")
    group.add_argument("--tls-key", metavar="FILE", help="its key (PEM; default: in the certificate's file)")
    group.add_argument("--bearer-token-file", metavar="FILE", help="answer clients that send the token in this file")
    group.add_argument("--basic-auth-file", metavar="FILE", help="answer clients that send this USER:PASSWORD")
    group.add_argument(
        "--insecure", action="store_true", help="serve any address, also without TLS and without a secret"
    )


def protection_of(options: Namespace, environment: Mapping[str, str]) -> Protection:
    """Returns the protection that the options ask for.

    :raises ConfigError: if a secret cannot be read.
    """
    from headrace.http_endpoints.access import read_access
    from headrace.http_endpoints.protection import Protection

    access = read_access(
        options.bearer_token_file,
        options.basic_auth_file,
        environment,
        bearer_variable="HEADRACE_HTTP_BEARER_TOKEN",
        basic_variable="HEADRACE_HTTP_BASIC_AUTH",
    )
    return Protection(
        certificate=options.tls_certificate or "",
        key=options.tls_key or "",
        key_password=environment.get("HEADRACE_HTTP_TLS_KEY_PASSWORD", ""),
        access=access,
        allows_insecure=options.insecure,
    )
