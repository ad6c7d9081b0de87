"""Compares IP addresses by their value: an address has many texts."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def address_of(host: str) -> str:
    """Returns one text for all texts of an IP address. Any other text stays as it is, and matches only itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_address(host: str) -> bool:
    """Whether a text is an IP address, and not the name of a host."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this host reaches a numerical address."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
