"""Simulates several hosts on one machine: each is a network namespace on a bridge that can drop packets.

The test itself is on the bridge, too. A cut between two hosts refuses nothing: packets disappear, as they do when a
switch fails, and both sides wait for answers that never arrive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack, suppress

from headrace.testing.cluster_process import Host

#: Nobody has it. Packets for it get as far as the bridge.
_NOWHERE = "02:00:00:00:00:00"


class NoNamespaces(Exception):
    """This machine, or this user, has none; the message says why."""


class Namespaces:
    """Implements ``ClusterProcess``' ``host_of``. To be closed after those who run here."""

    def __init__(self, *names: str) -> None:
        """
        :raises NoNamespaces:
        """
        if shutil.which("ip") is None:
            raise NoNamespaces("network partitions need the command ip (Debian: iproute2)")
        number = os.getpid()
        self._prefix = f"hr{number}"
        self._network = f"10.{200 + number // 256 % 50}.{number % 256}"
        self._names = {name: index for index, name in enumerate(names, start=2)}
        self._undo = ExitStack()
        self._dropped: list[tuple[str, str]] = []
        try:
            self._make_bridge()
            for name in names:
                self._make_host(name)
        except subprocess.CalledProcessError as error:
            self.close()
            raise NoNamespaces(f"network partitions need namespaces: {error.stderr.strip()}") from error

    def __call__(self, name: str) -> Host:
        return Host(self._address(name), ("ip", "netns", "exec", self._space(name)))

    def drop(self, source: str, target: str) -> None:
        """Drops the packets from one host to the other; the other direction stays as it is."""
        _ip(*self._in(source), "neigh", "replace", self._address(target), "lladdr", _NOWHERE, "nud", "permanent",
            "dev", "eth0")  # fmt: skip
        self._dropped.append((source, target))

    def cut(self, one: str, *others: str) -> None:
        """Drops the packets in both directions."""
        for other in others:
            self.drop(one, other)
            self.drop(other, one)

    def unplug(self, name: str) -> None:
        """A host is cut off from everybody, and from the test."""
        _ip("link", "set", self._port(name), "down")

    def mend(self) -> None:
        for name in self._names:
            _ip("link", "set", self._port(name), "up")
        while self._dropped:
            source, target = self._dropped.pop()
            with suppress(subprocess.CalledProcessError):  # it may be dropped twice
                _ip(*self._in(source), "neigh", "del", self._address(target), "dev", "eth0")

    def close(self) -> None:
        self._undo.close()

    # -- what it is made of

    def _make_bridge(self) -> None:
        bridge = self._prefix
        _ip("link", "add", bridge, "type", "bridge")
        self._undo.callback(_ip, "link", "del", bridge)
        _ip("address", "add", f"{self._network}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")

    def _make_host(self, name: str) -> None:
        space, port = self._space(name), self._port(name)
        _ip("netns", "add", space)
        self._undo.callback(_ip, "netns", "del", space)  # its end of the pair goes with it, and so the other
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", port, "master", self._prefix)
        _ip("link", "set", port, "up")
        _ip(*self._in(name), "address", "add", f"{self._address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(*self._in(name), "link", "set", device, "up")

    def _address(self, name: str) -> str:
        return f"{self._network}.{self._names[name]}"

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{self._names[name]}"

    def _port(self, name: str) -> str:
        return f"{self._prefix}p{self._names[name]}"

    def _in(self, name: str) -> tuple[str, str]:
        return "-n", self._space(name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)
