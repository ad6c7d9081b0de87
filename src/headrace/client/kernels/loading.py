"""Decides when a process loads the Numba kernels for records that are Python objects.

Numba takes 0.7 s and 100 MB to load. Then a record costs a fraction of a microsecond less. So a module of kernels is
loaded in the background once a process handles enough records: ``BUSY_RECORDS`` in ``BUSY_SECONDS``. If the module is
loaded already, it is used at once. If Numba is not installed, it is never used. Without the kernels, Python does the
work.
"""

import importlib
import sys
from threading import Thread
from time import monotonic
from types import ModuleType

BUSY_RECORDS, BUSY_SECONDS = 200_000, 20.0


class KernelLoading:
    """Loads one module of kernels when it is worth it."""

    def __init__(self, module: str) -> None:
        #: Whether the decision is made: the module is loaded, or cannot be.
        self.is_done = False
        self.kernels: ModuleType | None = None
        self._module = module
        self._is_loading = False
        self._since = 0.0
        self._records = 0

    def when_busy(self, records: int) -> ModuleType | None:
        """Returns the kernels if they are loaded. Counts the records, and starts to load when there are enough."""
        if self.is_done or self._is_loading:
            return self.kernels
        if self._module in sys.modules:
            return self.now()
        if not self._records or monotonic() - self._since > BUSY_SECONDS:
            self._since, self._records = monotonic(), 0
        self._records += records
        if self._records >= BUSY_RECORDS:
            self._is_loading = True
            Thread(target=self.now, name="headrace-kernels", daemon=True).start()
        return None

    def now(self) -> ModuleType | None:
        """Loads the kernels and waits for it. Returns None if Numba is not installed."""
        try:
            self.kernels = importlib.import_module(self._module)
        except ImportError:
            self.kernels = None
        self.is_done = True
        return self.kernels
