"""Whole Arrow tables through the clients, encoded and decoded by Numba kernels."""
