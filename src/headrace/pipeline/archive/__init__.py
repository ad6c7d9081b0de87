"""The archive: the master data of Lambda views as Parquet files."""
