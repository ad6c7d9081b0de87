"""The names of a segment's files: its base offset in 20 digits, then one of these."""

LOG, INDEX, TIMEINDEX, TXNINDEX = ".log", ".index", ".timeindex", ".txnindex"

#: On top of the others: to be unlinked; being written by the cleaner; written, and about to take the place of the old.
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"
