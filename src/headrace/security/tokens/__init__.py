"""Delegation tokens (KIP-48, KIP-373): what they are, their form in the tree, who may do what with them. No I/O."""
