"""Finds out who the client of a connection is: logins by SASL, and the users that may log in."""
