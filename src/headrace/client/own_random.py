"""Creates the clients' random generator, which is independent of Python's global generator.

Clients draw on threads of their own, at times that nobody controls. If they drew from the global generator, a program
that seeds ``random`` would not repeat itself, and Hypothesis would reject a user's strategy: it fails a test during
which the global generator has moved.
"""

import os
from random import Random

_generator = Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_generator.seed)  # as the module random does: children must not draw alike

random = _generator.random
randrange = _generator.randrange
uniform = _generator.uniform
shuffle = _generator.shuffle
seed = _generator.seed
getstate = _generator.getstate
setstate = _generator.setstate
