"""Decides what the clients of a broker may do: ACLs, super users, and the questions of each API."""
