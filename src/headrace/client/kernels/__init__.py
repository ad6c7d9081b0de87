"""Numba kernels: they encode and decode record batches without a Python object per record.

``compiling`` compiles the kernels. ``loading`` decides when a process loads them. ``decode`` and ``headers`` read
batches, ``encode`` and ``bulk_encoding`` write them. Only ``loading`` may be imported without Numba.
"""
