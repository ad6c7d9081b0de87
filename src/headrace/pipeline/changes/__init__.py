"""Tells others about the changes of views: a change feed, a published topic, ``headrace query --watch``. No Spark."""
