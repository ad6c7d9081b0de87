"""Makes the harnesses of this folder importable for the tests in its folders."""
