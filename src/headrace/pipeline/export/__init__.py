"""Views as Delta tables: snapshots of their rows, each with the offsets that it is as of. No Spark."""
