"""Holds the parts that several commands share: options, connections, output, errors, input files."""
