"""Reads records for people: pages of a topic, searches, the live tail and downloads.

``batches.py`` takes batches apart, ``decoding.py`` and ``registry.py`` make texts and documents of keys and values, and
``masking.py`` hides fields. ``rows.py`` puts these together: everything that leaves this package went through it.
``browsing.py`` reads pages. ``criteria.py``, ``filter_parser.py`` and ``matching.py`` say which records a search wants;
``search.py`` reads all partitions for it, and ``searches.py`` bounds how many do so at once. ``tail.py`` follows the
end, ``downloads.py`` writes files, and ``changing.py`` reads what the two actions need.
"""
