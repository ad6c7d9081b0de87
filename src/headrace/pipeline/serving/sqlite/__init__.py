"""Opens the files of SQLite with their pragmas, and writes many rows by one statement."""
