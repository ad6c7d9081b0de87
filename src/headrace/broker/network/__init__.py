"""Brings requests from sockets to handlers, and answers back: listener, connection, request queue, dispatcher."""
