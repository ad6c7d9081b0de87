"""Asks a project of views: its graph, its versions with their progress, the answers of queries, and records of its log.

Modules of ``headrace.pipeline`` are imported with the first request, not with the console, because SQLAlchemy takes
half a second. None of them imports Spark or pyarrow.
"""
