"""When Numba's kernels are worth loading for records that come and go as Python objects.

Numba takes 0.7 s to load and 100 MB, and then a record costs a fraction of a microsecond less. So a module of kernels
is loaded in the background once a process handles so much that it pays: ``BUSY_RECORDS`` in ``BUSY_SECONDS``; at once
where it is loaded already; never where Numba is not installed. Until then, and else, Python does the work.
"""

import importlib
import sys
from threading import Thread
from time import monotonic
from types import ModuleType

BUSY_RECORDS, BUSY_SECONDS = 200_000, 20.0


class KernelLoading:
    """Whether a module of kernels is worth loading, and whether it is there."""

    def __init__(self, module: str) -> None:
        #: Nothing is left to decide: it is loaded, or cannot be.
        self.is_done = False
        self.kernels: ModuleType | None = None
        self._module = module
        self._is_loading = False
        self._since = 0.0
        self._records = 0

    def when_busy(self, records: int) -> ModuleType | None:
        """The kernels, if they are there. If these records make it worth while to load them, begin."""
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
        """Load them and wait for it; None: Numba is not installed."""
        try:
            self.kernels = importlib.import_module(self._module)
        except ImportError:
            self.kernels = None
        self.is_done = True
        return self.kernels
