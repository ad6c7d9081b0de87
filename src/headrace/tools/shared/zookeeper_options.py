"""The options of commands that connect to ZooKeeper themselves: TLS and a login."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from headrace.coordination.client.client_security import LOGIN_FILE, SETTINGS, ClientSecurity
from headrace.properties import ConfigError, read_properties_file
from headrace.tools.shared.commands import UsageError


def client_security(options: Namespace) -> ClientSecurity:
    """Takes the settings of the file ``options.zk_tls_file``, and the login of ``options.login_file``.

    :raises UsageError: if a file cannot be used.
    """
    try:
        given = {} if options.zk_tls_file is None else read_properties_file(Path(options.zk_tls_file))
        if options.login_file is not None:
            given[LOGIN_FILE] = options.login_file
        return ClientSecurity.from_settings({name: given[name] for name in SETTINGS if name in given})
    except ConfigError as error:
        raise UsageError(str(error)) from None
