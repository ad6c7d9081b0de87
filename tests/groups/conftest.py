"""Makes the harnesses of this folder importable from the tests in its subfolders."""
