"""Clients of a znode tree: one in this process, one over the network with kazoo."""
