"""Runs the group coordinator and the transaction coordinator on the logs and the event loop of a broker."""
