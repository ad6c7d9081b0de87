"""Bytes to messages and back. No I/O."""
