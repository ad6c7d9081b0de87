"""Sockets to handlers: listener, connection, request queue, dispatch."""
