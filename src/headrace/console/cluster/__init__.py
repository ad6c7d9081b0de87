"""Asks a cluster for what pages show, with the rights of one visitor.

``reader.py`` has a method per question, and keeps each answer for a moment, because several parts of a page and several
open pages ask the same. ``cached.py`` is that memory. ``identities.py`` makes one reader per user.
"""
