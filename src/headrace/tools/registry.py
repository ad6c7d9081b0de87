"""``headrace registry``: serves a schema registry with the HTTP API of Confluent's registry, until a signal stops it.

The schemas are in the topic ``_schemas`` of the brokers. The command prints ``ready HOST:PORT`` on standard output when
it serves; everything else goes to standard error. SIGTERM and Ctrl-C end it with exit code 0. A setting that cannot be
used, a taken address and a topic that cannot hold schemas end it with exit code 2.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from headrace.properties import ConfigError
from headrace.tools.shared.commands import DONE, Output, UsageError, client_options, new_parser, run
from headrace.tools.shared.http_options import (
    add_http_protection,
    address,
    protection_of,
    require_packages,
    serve_until_signal,
)
from headrace.tools.shared.stderr_log import log_to_stderr

_EXAMPLES = """
headrace registry
headrace registry --listen 127.0.0.1:8082 --bootstrap-server kafka1:9092,kafka2:9092
headrace registry --listen 0.0.0.0:8081 --tls-certificate registry.pem --tls-key registry.key --basic-auth-file login
headrace registry --listen 0.0.0.0:8081 --advertise registry1:8081 --insecure --command-config client.properties
"""
#: The packages of the extra, by a module of each.
_NEEDED = {"fastavro": "fastavro", "grpc_tools": "grpcio-tools", "jsonschema": "jsonschema", "uvicorn": "uvicorn"}


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "registry",
        "Serve a schema registry with the HTTP API of Confluent's registry. Schemas are stored in a compacted topic. "
        "Several registries of one topic elect a leader; each of them answers every request.",
        _EXAMPLES,
        prints_json=False,
    )
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", type=address, default=("127.0.0.1", 8081),
        help="the address to listen on (default 127.0.0.1:8081); port 0 picks a free port")  # fmt: skip
    add("--advertise", metavar="HOST:PORT", type=address, default=("", 0),
        help="the address that other registries use for this one (default: the address to listen on)")  # fmt: skip
    add("--topic", metavar="NAME", default="_schemas", help="the topic of the schemas (default %(default)s)")
    add("--group", metavar="NAME", default="schema-registry",
        help="registries of the same group elect a leader (default %(default)s)")  # fmt: skip
    add("--registry-ca", metavar="FILE", default="",
        help="certificates (PEM) to check those of other registries against (default: the system's)")  # fmt: skip
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default %(default)s")
    add_http_protection(parser)
    return parser


def _work(options: Namespace, _: Output) -> int:
    require_packages("registry", _NEEDED)
    log_to_stderr(options.log_level.upper(), suffix=" (%(name)s)")
    try:
        serve_until_signal(_serve(options))
    except ConfigError as error:
        raise UsageError("; ".join(error.problems)) from None
    return DONE


async def _serve(options: Namespace) -> None:
    from headrace.client.config import AdminConfig, ConsumerConfig, ProducerConfig
    from headrace.registry.server import Settings, serve

    settings = Settings(
        host=options.listen[0],
        port=options.listen[1],
        topic=options.topic,
        group=options.group,
        admin=client_options(options, AdminConfig),
        consumer=client_options(options, ConsumerConfig),
        producer=client_options(options, ProducerConfig),
        advertised=options.advertise,
        certificates=options.registry_ca,
        protection=protection_of(options, os.environ),
    )
    await serve(settings)
