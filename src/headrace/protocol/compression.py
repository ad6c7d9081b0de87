"""Compresses and decompresses the records of a batch, in the formats of Kafka's own clients.

gzip    members of RFC 1952, one after another.
snappy  Java clients write the stream format of xerial, others one raw snappy block. Both are read; the stream is
        written::

            0   82 'SNAPPY' 00   8 bytes
            8   version          int32, 1
            12  readable since   int32, 1
            16  blocks           int32 length, then that many bytes of raw snappy (32 KB before compression)

lz4     frames with independent blocks of 64 KB.
zstd    frames.

A few compressed bytes may expand to gigabytes. So the caller gives a limit, and the output never grows past it: the
output goes into a buffer of our own size, and sizes that the data declare are checked before they are used.

cramjam is imported with the first batch that needs it. A broker stores batches as they came, and mostly never needs it.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

from headrace.protocol.errors import CorruptMessage, MessageTooLarge
from headrace.protocol.records import Buffer, Codec

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["DEFAULT_LIMIT_BYTES", "compress", "decompress"]

#: The largest request (``socket.request.max.bytes``): nobody could have sent more without compression.
DEFAULT_LIMIT_BYTES = 104_857_600

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
#: What a member of gzip gets first. Each further chunk of the member has twice the size.
_GZIP_CHUNK_BYTES = 512
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")
#: Kafka's default lz4 level means the fast compressor, and not level 9 of the slow one (KIP-390).
_LZ4_DEFAULT_LEVEL = 9
_ZSTD_DEFAULT_LEVEL = 3
#: The first guess of how far lz4 and zstd will expand. If the output is too small, the next try has four times as much.
_FIRST_GUESS, _SMALLEST_OUTPUT_BYTES = 8, 64 * 1024
#: cramjam's message when the output buffer is full. Other messages mean bad input.
_OUTPUT_FULL = "failed to write whole buffer"


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """The data, compressed. The level None is Kafka's default for the codec (snappy has no levels)."""
    if codec is Codec.none:
        return bytes(data)
    if codec is Codec.gzip:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(data) + packer.flush()
    if codec is Codec.snappy:
        return _compress_snappy(data)
    import cramjam

    if codec is Codec.lz4:
        lz4_level = 0 if level in (None, _LZ4_DEFAULT_LEVEL) else level
        frame = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The data, decompressed.

    :raises CorruptMessage: if the data are not of that codec, or are cut.
    :raises MessageTooLarge: if the output would be larger than the limit. No more than the limit is ever in memory.
    """
    if codec is Codec.none:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(data)
    if codec is Codec.gzip:
        return _decompress_gzip(data, limit_bytes)
    if codec is Codec.snappy:
        return _decompress_snappy(data, limit_bytes)
    import cramjam

    module = cramjam.lz4 if codec is Codec.lz4 else cramjam.zstd
    return _decompress_growing(cramjam, module.decompress_into, data, limit_bytes)


def _too_large(limit_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(f"the records of a batch have more than {limit_bytes} bytes after decompression")


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    room_bytes = limit_bytes
    position = 0
    try:
        while True:
            member = zlib.decompressobj(_GZIP_WINDOW)
            # zlib copies what follows a member. So a member gets the rest in chunks: otherwise a batch of many small
            # members would be copied once per member.
            chunk_bytes = _GZIP_CHUNK_BYTES
            while not member.eof:
                if position == len(view):
                    raise CorruptMessage("a gzip stream ends too early")
                chunk = view[position : position + chunk_bytes]
                # With one byte more than the limit, a stream that just fits differs from one that does not.
                part = member.decompress(chunk, room_bytes + 1)
                position += len(chunk) - len(member.unused_data)
                chunk_bytes *= 2
                room_bytes -= len(part)
                if room_bytes < 0:
                    raise _too_large(limit_bytes)
                if part:
                    parts.append(part)
            if position == len(view):
                return b"".join(parts)
    except zlib.error as error:
        raise CorruptMessage(f"not a gzip stream: {error}") from error


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += _INT32.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    import cramjam

    view = memoryview(data)
    is_stream = bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks: Iterable[memoryview] = _xerial_blocks(view) if is_stream else (view,)
    parts: list[bytes] = []
    room_bytes = limit_bytes
    try:
        for block in blocks:
            room_bytes -= cramjam.snappy.decompress_raw_len(block)
            if room_bytes < 0:
                raise _too_large(limit_bytes)
            part = bytes(cramjam.snappy.decompress_raw(block))
            if part:
                parts.append(part)
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"not a snappy block: {error}") from error
    return b"".join(parts)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position, end = 0, len(view)
    while position < end:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Streams may be joined, so a header may come between blocks; no block is 0x82534e41 bytes long.
            position += len(_XERIAL_HEADER)
            if position > end:
                raise CorruptMessage("a snappy stream ends inside its header")
            continue
        if end - position < _INT32.size:
            raise CorruptMessage("a snappy stream ends inside the length of a block")
        (block_bytes,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < block_bytes <= end - position:
            raise CorruptMessage(f"a snappy block of {block_bytes} bytes, but only {end - position} bytes follow")
        yield view[position : position + block_bytes]
        position += block_bytes


def _decompress_growing(
    cramjam: "ModuleType", decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit_bytes: int
) -> bytes:
    output_bytes = max(_SMALLEST_OUTPUT_BYTES, _FIRST_GUESS * len(data))
    while True:
        output_bytes = min(output_bytes, limit_bytes)
        output = bytearray(output_bytes)
        try:
            written_bytes = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise CorruptMessage(f"compressed records cannot be read: {error}") from error
            if output_bytes == limit_bytes:
                raise _too_large(limit_bytes) from error
            output_bytes *= 4
            continue
        return bytes(memoryview(output)[:written_bytes])
