"""A broker with a TLS listener, certificates for it, and raw clients that speak TLS."""

import ssl
import time

import trustme

from headrace import Broker
from headrace.testing.raw_client import RawClient

AUTHORITY = trustme.CA()
_SERVER = AUTHORITY.issue_cert("localhost", "127.0.0.1")


def pem_of(certificate):
    """The key and the certificate chain as PEM texts."""
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode()
    return certificate.private_key_pem.bytes().decode(), chain


def tls_config(listeners="SSL://127.0.0.1:0", certificate=_SERVER, **settings):
    key, chain = pem_of(certificate)
    return {
        "listeners": listeners,
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.cert_pem.bytes().decode(),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def tls_broker(*, data=None, config=None, **settings):
    return Broker(data=data, config={**tls_config(**settings), **(config or {})})


def client_context(certificate=None, authority=AUTHORITY, **versions):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    for name, version in versions.items():
        setattr(context, name, version)
    return context


class TlsRawClient(RawClient):
    """Sends exactly the requests that a test says, over TLS."""

    def __init__(self, address, *, context=None, **options):
        context = context or client_context()  # before the broker begins to wait for the handshake
        super().__init__(address, **options)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except BaseException:
            self.socket.close()
            raise


class InPieces:
    """The socket of a client whose encrypted bytes arrive in pieces, cut anywhere in a record, with pauses between."""

    def __init__(self, sock, random):
        self._socket, self._random = sock, random
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._in, self._out, server_hostname="localhost")
        self._until_done(self._tls.do_handshake)
        self._flush()

    def sendall(self, data):
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[: self._random.choice((1, 10, 100, 5_000, 16_384))]) :]
        encrypted = memoryview(self._out.read())
        while encrypted:
            size_bytes = self._random.randrange(1, 40_000)
            self._socket.sendall(encrypted[:size_bytes])
            encrypted = encrypted[size_bytes:]
            time.sleep(0.001)

    def recv_into(self, view):
        return self._until_done(lambda: self._tls.read(len(view), view))

    def close(self):
        self._socket.close()

    def _until_done(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._flush()
                self._in.write(self._socket.recv(65_536))

    def _flush(self):
        self._socket.sendall(self._out.read())
