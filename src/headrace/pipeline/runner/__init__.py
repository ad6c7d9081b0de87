"""The runner behind ``headrace views run``: it starts, watches, retries and switches versions of views."""
