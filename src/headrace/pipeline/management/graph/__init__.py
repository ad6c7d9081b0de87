"""Holds the graph of a project's sources and views, and draws it as SVG."""
