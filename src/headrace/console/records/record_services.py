"""Holds what all requests about records share: masks, the decoder with its schemas, and the searches that run."""

from __future__ import annotations

from headrace.console.records.decoding import Decoder
from headrace.console.records.masking import Masks
from headrace.console.records.registry import RecordSchemas
from headrace.console.records.searches import Searches
from headrace.console.settings import Settings


class RecordServices:
    """The shared parts of one console."""

    def __init__(self, settings: Settings) -> None:
        self.masks = Masks(settings.masks)
        self.decoder = Decoder(self.masks, RecordSchemas(settings.registry) if settings.registry else None)
        self.searches = Searches()

    async def close(self) -> None:
        await self.searches.close()
