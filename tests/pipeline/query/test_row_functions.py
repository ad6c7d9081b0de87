"""The functions over rows: the bytes that the JVM returns."""

from __future__ import annotations

from base64 import b64encode

from py4j import protocol

from headrace.pipeline.query.row_functions import receive_bytes_fast


def test_bytes_from_the_jvm_are_decoded_as_py4j_decodes_them():
    receive_bytes_fast()
    for sent in (b"", b"\x00\xff", bytes(range(256)) * 3):
        encoded = b64encode(sent).decode()
        received = protocol.get_return_value(f"yj{encoded}", None)
        assert received == sent == protocol.decode_bytearray(encoded)
        assert type(received) is bytes
