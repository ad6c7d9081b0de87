"""Reads and writes ``partition.metadata``: the id of the topic that a folder belongs to. The id tells a topic from an
older one of the same name that was deleted.

::

    version: 0
    topic_id: <uuid, base64url without padding>
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from logging import getLogger
from uuid import UUID

from headrace.log.disk import Disk

logger = getLogger(__name__)

FILE_NAME = "partition.metadata"


def write(disk: Disk, folder: str, topic_id: UUID) -> None:
    disk.write_file(f"{folder}/{FILE_NAME}", f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())


def read(disk: Disk, folder: str) -> UUID | None:
    path = f"{folder}/{FILE_NAME}"
    data = disk.read_file(path)
    if data is None:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
        return decode_uuid(fields["topic_id"])
    except (ValueError, KeyError):
        logger.warning("%s is damaged, so the topic id of this folder is unknown", path)
        return None


def encode_uuid(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text.strip() + "=="))
