"""Decides which requests a broker carries out: ACLs, super users, and what each API has to ask for."""
