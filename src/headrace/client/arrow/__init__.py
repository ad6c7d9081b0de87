"""Whole Arrow tables for the clients: ``writing`` makes batches of a table, ``reading`` makes a table of batches.

``tables`` is what ``send_arrow`` and ``poll_arrow`` of the clients call. The work is done by ``client/kernels``.
"""
