"""A certificate of a test CA, as PEM files."""

import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme


class Certificate(NamedTuple):
    chain: str
    key: str
    client_context: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return Certificate(str(chain), str(key), context)
