"""The one door to kio, which carries the protocol.

kio imports Hypothesis where it is installed, to register strategies for its types: 0.3 s that a broker in a test
environment would pay at each start. A process that has not loaded Hypothesis by now does not want it.
"""

import sys

_ABSENT = object()
_hypothesis = sys.modules.get("hypothesis", _ABSENT)
if _hypothesis is _ABSENT:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # makes "import hypothesis" raise ImportError

from kio.schema.errors import ErrorCode  # noqa: E402

if _hypothesis is _ABSENT:
    del sys.modules["hypothesis"]

__all__ = ["ErrorCode"]
