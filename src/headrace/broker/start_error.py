"""Why a broker does not start."""


class StartError(Exception):
    """The broker cannot start, and this one line says why and what to do."""
