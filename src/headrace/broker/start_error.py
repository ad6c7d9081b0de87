"""The error of a broker that cannot start."""


class StartError(Exception):
    """The broker cannot start. The message is one line that says why, and what to do."""
