"""Decides whether readers with one schema can read what writers with another schema have written. No I/O."""
