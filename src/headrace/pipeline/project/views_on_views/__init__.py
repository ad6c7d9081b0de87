"""Views on views: the order of views, the definitions that they share, and the versions that take over together."""
