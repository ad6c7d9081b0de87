"""Decodes records into events with typed columns, and sends bad records to the dead-letter topic."""
