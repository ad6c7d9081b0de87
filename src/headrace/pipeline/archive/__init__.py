"""The archive: the records that Lambda views read, as Parquet files."""
