"""Decodes records into typed columns, and sends records that do not decode to the dead-letter topic."""
