"""Membership in a consumer group.

``classic`` is the classic protocol: ``join_round`` joins the group, ``assignors`` and ``sticky_assignor`` share the
partitions out. ``consumer`` is the consumer protocol (KIP-848). ``interfaces`` has the methods that a
membership calls and offers.
"""
