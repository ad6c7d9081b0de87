"""What stands in the broker's answer for a partition, beside code and offset."""

from typing import Any


def epoch_ms(moment: Any) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)


def message_of(answer: Any) -> str | None:
    """What the broker says in words, from v8 on."""
    parts = [getattr(answer, "error_message", None)]
    parts += [
        f"record {int(error.batch_index)}: {error.batch_index_error_message}"
        for error in getattr(answer, "record_errors", ())
    ]
    return "; ".join(part for part in parts if part) or None
