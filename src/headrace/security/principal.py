"""The principal of a connection: the user for whom all requests of the connection are made.

Kafka writes a principal as ``Type:name``, in ACLs, in ``super.users`` and in delegation tokens. The type is ``User``
for every client that a broker authenticates itself.
"""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parses ``Type:name``. The name may contain colons, and may be empty.

        :raises ValueError: if the text has no colon, or no type before the colon.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text!r} is not a principal: write TYPE:NAME, for example User:alice")
        return cls(kind, name)


USER = "User"
#: The principal of a connection whose client was not authenticated.
ANONYMOUS = Principal(USER, "ANONYMOUS")
