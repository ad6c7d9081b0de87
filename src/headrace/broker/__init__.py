"""The broker: takes requests from sockets, calls their handlers, and stores records in logs."""
