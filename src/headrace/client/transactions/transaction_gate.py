"""What the sender asks of a transaction (``transactions.py`` answers)."""

from typing import Protocol


class TransactionGate(Protocol):
    """What the sender asks of a transaction."""

    transactional_id: str

    @property
    def produce_version(self) -> int: ...

    def unadmitted(self) -> bool:
        """Whether partitions that have records are to be added to the transaction first; the lock is held."""
        ...

    async def admit(self) -> None:
        """Adds them."""
        ...

    def batch_failed(self, error: Exception) -> None: ...
