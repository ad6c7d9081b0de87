"""Names the files of a segment: the base offset in 20 digits, then one of the suffixes below."""

LOG, INDEX, TIMEINDEX, TXNINDEX = ".log", ".index", ".timeindex", ".txnindex"

#: Suffixes behind the ones above. DELETED: to be unlinked. CLEANED: the cleaner is writing the file. SWAP: the cleaner
#: has written the file, which is about to replace the old one.
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"
