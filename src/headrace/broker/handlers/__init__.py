"""The handlers: one file per API. The folder listing is the table of the APIs that a broker answers.

A file whose name begins with ``_`` holds code that several handlers share.
"""
