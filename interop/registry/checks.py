"""Confluent's Java client and Avro serializers on ``headrace registry``: what docs/registry.md says of them.

Argument: the class path of ``RegistryChecks``. Starts a broker, two registries of one topic, and a third one with TLS
and a password. The Java program prints a line per check, as ``interop/lib.sh`` wants it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import trustme

from headrace import Broker
from headrace.testing.registry_process import RegistryProcess

_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGIN = "ann:secret"


def main(class_path: str) -> int:
    with tempfile.TemporaryDirectory() as made, Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        folder = Path(made)
        authority, keys, login = folder / "ca.pem", folder / "registry.pem", folder / "login"
        ca = trustme.CA()
        ca.cert_pem.write_to_path(authority)
        ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keys)
        login.write_text(f"{_LOGIN}\n")
        protection = (
            *("--topic", "_secured", "--group", "secured"),
            *("--tls-certificate", str(keys), "--basic-auth-file", str(login), "--registry-ca", str(authority)),
        )
        address = broker.bootstrap_servers
        with (
            RegistryProcess(address, folder, name="one") as one,
            RegistryProcess(address, folder, name="two") as two,
            RegistryProcess(address, folder, *protection, name="secured") as secured,
        ):
            # The second one is asked first: it forwards changes to the leader.
            words = [address, two.url, one.url, f"https://{secured.address}", str(authority), _LOGIN]
            return subprocess.run([*_JAVA, "-cp", class_path, "interop.RegistryChecks", *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
