"""``headrace start --brokers N``: runs several brokers on this host, each as a process, under one parent process.

The parent serves the znode tree on 127.0.0.1, stored in ``DATA/zookeeper`` (or uses a given ZooKeeper). It runs
``headrace start`` for each broker, with its data in ``DATA/broker-N``. When all brokers serve, the parent prints one
line, ``ready HOST:PORT,HOST:PORT,...``.

Every user of the host can connect to 127.0.0.1. So the tree answers only clients that log in with a secret, which is
new at each start. The brokers read the secret from ``DATA/zookeeper/brokers.login``, which only the owner may read. The
secret is in a file, not in an inherited descriptor, because a broker may be started again by hand. The login is for the
whole tree; access control lists of znodes would not protect what an earlier start has created.

Every user of the host can read the arguments of a process, too. The parent writes secret settings of its own ``-o``
options to ``DATA/brokers.secrets``, and removes the file at its end.

The parent notices the death of a broker at once, and ends the broker's session, so that other brokers take over without
waiting for the session timeout. The parent does not restart the broker; the log has the command for it. If no broker is
left, the parent exits with code 1. SIGTERM and Ctrl-C stop one broker after the other by a controlled shutdown, the
controller last, and then the tree. If the parent is killed, the kernel kills its brokers too, because they cannot work
without their tree.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from logging import getLogger
from pathlib import Path
from socket import gethostname
from typing import Any

from headrace.broker.configs.keys import ConfigType
from headrace.broker.configs.registry import broker_key
from headrace.coordination.client.client_security import LOGIN_FILE
from headrace.coordination.interface import NoNodeError
from headrace.coordination.paths import CONTROLLER, broker_path
from headrace.coordination.server.logins import Logins
from headrace.coordination.server.service import TreeService
from headrace.coordination.tree.caller import digest_of
from headrace.coordination.tree.store import write_private
from headrace.coordination.znodes import ControllerRegistration
from headrace.event_loop import new_event_loop
from headrace.properties import parse_overrides, read_properties_file, to_properties
from headrace.tools.shared.served_tree import TreeNotServed, served_tree
from headrace.tools.start.children import HEADRACE, dying_with_parent
from headrace.tools.start.console_beside import ConsoleNotStarted, address_text, console_beside

logger = getLogger("headrace")

#: Where the tree is, in the data folder.
TREE_FOLDER = "zookeeper"
_LOGIN_FILE = "brokers.login"
_SECRETS_FILE = "brokers.secrets"
_CANNOT_START = 2
_FIRST_ID = 1
_METRICS_CERTIFICATE = "headrace.metrics.ssl.certificate.location"


class ClusterError(Exception):
    """The cluster cannot start; the message is one line for the user, or empty if a broker has printed the reason."""


def folder_of(data: Path, number: int) -> Path:
    return data / f"broker-{number}"


def run(options: argparse.Namespace) -> int:
    """Runs the cluster until a signal stops it; returns the exit code."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_LocalCluster(options).serve())
    except (ClusterError, ConsoleNotStarted, TreeNotServed) as error:
        if str(error):
            sys.stderr.write(f"headrace: {error}\n")
        return _CANNOT_START


class _LocalCluster:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._data = Path("headrace-data" if options.data is None else options.data)
        self._stopping = asyncio.Event()
        self._service: TreeService | None = None
        self._login_file: Path | None = None
        self._secrets: Path | None = None

    async def serve(self) -> int:
        if (self._data / "meta.properties").exists():
            raise ClusterError(f"{self._data} is the folder of a single broker; give --brokers another --data")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _ask_to_stop, self._stopping)
        with self._secrets_file() as self._secrets:
            return await self._serve_brokers()

    @contextmanager
    def _secrets_file(self) -> Iterator[Path | None]:
        """Writes the secrets among the options ``-o`` to a file. Yields None if there are none."""
        secrets = {name: text for name, text in parse_overrides(self._options.overrides).items() if is_secret(name)}
        if not secrets:
            yield None
            return
        path = self._data / _SECRETS_FILE
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            write_private(path, to_properties(secrets).encode())
        except OSError as error:
            raise ClusterError(f"cannot write {path}: {error.strerror}") from None
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    async def _serve_brokers(self) -> int:
        async with self._tree() as connect:
            self._brokers = [
                _BrokerProcess(number, self._arguments(number, connect)) for number in range(self._options.brokers)
            ]
            try:
                return await self._supervise()
            finally:
                for broker in self._brokers:
                    broker.kill()

    @asynccontextmanager
    async def _tree(self) -> AsyncIterator[str]:
        if self._options.zookeeper is not None:
            yield self._options.zookeeper
            return
        login = f"super:{secrets.token_hex(32)}"
        logins = Logins(super_digest=digest_of(login), requires_super=True)
        folder = self._data / TREE_FOLDER
        async with served_tree(folder, ("127.0.0.1", 0), keep_sessions=False, logins=logins) as tree:
            self._login_file = folder / _LOGIN_FILE
            write_private(self._login_file, login.encode())
            self._service = tree.service
            (address,) = tree.addresses
            logger.info("the znode tree is at %s", address)
            logger.info("its login is in %s", self._login_file)
            try:
                yield address
            finally:
                self._login_file.unlink(missing_ok=True)

    def _arguments(self, number: int, connect: str) -> list[str]:
        """The arguments of ``headrace start`` for one broker; numbers start at 0."""
        options = self._options
        host, port = _address("127.0.0.1:9092" if options.listen is None else options.listen)
        arguments = ["--data", str(folder_of(self._data, number + 1)), "--zookeeper", connect]
        arguments += ["--listen", f"{host}:{port + number if port else 0}", "--log-level", options.log_level]
        broker_id = self._broker_id(number)
        if broker_id is not None:
            arguments += ["--broker-id", str(broker_id)]
        if options.config is not None:
            arguments += ["--config", str(options.config)]
        if options.metrics is not None:
            metrics_host, metrics_port = _address(options.metrics)
            arguments += ["--metrics", f"{metrics_host}:{metrics_port + number if metrics_port else 0}"]
        if self._login_file is not None:
            arguments += ["-o", f"{LOGIN_FILE}={self._login_file}"]
        if options.zookeeper is not None:
            arguments += [
                "-o",
                f"broker.rack={gethostname()}",
            ]  # So that replicas of one partition go to several hosts.
        for file in (*options.secrets, *([] if self._secrets is None else [self._secrets])):
            arguments += ["--secrets", str(file)]
        for name, text in parse_overrides(options.overrides).items():
            if not is_secret(name):
                arguments += ["-o", f"{name}={text}"]
        return arguments

    def _metrics_addresses(self) -> list[str]:
        """The addresses of the brokers' metrics, if the ports are known and the console needs no certificate."""
        options = self._options
        if options.metrics is None or options.console is None:
            return []
        given = {} if options.config is None else read_properties_file(options.config)
        host, port = _address(options.metrics)
        if not port or _METRICS_CERTIFICATE in given | parse_overrides(options.overrides):
            return []
        return [address_text(host, port + number) for number in range(options.brokers)]

    def _broker_id(self, number: int) -> int | None:
        """The id of a broker; None if ZooKeeper assigns ids."""
        if self._options.broker_id is not None:
            return int(self._options.broker_id) + number
        return _FIRST_ID + number if self._options.zookeeper is None else None

    # -- the lives of brokers

    async def _supervise(self) -> int:
        for broker in self._brokers:
            await broker.start()
        deaths = [asyncio.create_task(self._wait_for_end(broker)) for broker in self._brokers]
        try:
            addresses = await self._all_ready()
            try:
                async with console_beside(self._options, addresses, self._metrics_addresses()):
                    return await self._serve_until_stopped(addresses, asyncio.gather(*deaths))
            except ConsoleNotStarted:
                await self._stop_brokers()
                raise
        finally:
            for death in deaths:
                death.cancel()

    async def _serve_until_stopped(self, addresses: list[str], everyone: asyncio.Future[Any]) -> int:
        sys.stdout.write(f"ready {','.join(addresses)}\n")
        sys.stdout.flush()
        stopped = asyncio.create_task(self._stopping.wait())
        await _first_of(stopped, everyone)
        stopped.cancel()
        if not self._stopping.is_set():
            logger.error("no broker is left")
            return 1
        await self._stop_brokers()
        await everyone
        return 0

    async def _all_ready(self) -> list[str]:
        waiting = asyncio.gather(*(broker.ready() for broker in self._brokers))
        stopped = asyncio.create_task(self._stopping.wait())
        await _first_of(waiting, stopped)
        stopped.cancel()
        if not waiting.done():
            waiting.cancel()
            await self._stop_brokers()
            raise ClusterError("stopped before all brokers were ready")
        return waiting.result()

    async def _wait_for_end(self, broker: _BrokerProcess) -> None:
        code = await broker.ended()
        if self._stopping.is_set() or not broker.was_ready:
            return
        how = f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"
        logger.error(
            "broker %d (process %d) %s; the other brokers continue. To start it again: %s",
            broker.number + 1, broker.pid, how, broker.command_line,
        )  # fmt: skip
        self._end_session(broker)

    def _end_session(self, broker: _BrokerProcess) -> None:
        broker_id = self._broker_id(broker.number)
        if self._service is None or broker_id is None:
            return
        stat = self._service.host.tree.exists(broker_path(broker_id))
        if stat is not None and self._service.sessions.expire(stat.ephemeral_owner):
            logger.info("ended its session %#x", stat.ephemeral_owner)

    async def _stop_brokers(self) -> None:
        logger.info("stopping")
        controller_id = self._controller_id()
        for broker in sorted(self._brokers, key=lambda one: self._broker_id(one.number) == controller_id):
            if broker.is_running:
                broker.terminate()
                await broker.ended()

    def _controller_id(self) -> int | None:
        if self._service is None:
            return None
        try:
            data, _ = self._service.host.tree.get(CONTROLLER)
        except NoNodeError:
            return None
        return ControllerRegistration.from_json(data).broker_id


class _BrokerProcess:
    def __init__(self, number: int, arguments: list[str]) -> None:
        self.number = number
        self.was_ready = False
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    @property
    def command_line(self) -> str:
        return shlex.join(["headrace", "start", *self._arguments])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        # In a process session of its own, so that only the parent gets Ctrl-C. The parent stops the brokers in order.
        self._process = await asyncio.create_subprocess_exec(
            *HEADRACE,
            "start",
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=dying_with_parent(),
        )

    async def ready(self) -> str:
        """Waits until the broker serves, and returns its address.

        :raises ClusterError: if the broker ends instead; the broker has printed the reason.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line:
            code = await self._process.wait()
            raise ClusterError("" if code == _CANNOT_START else f"broker {self.number + 1} ended while it started")
        self.was_ready = True
        logger.info("broker %d is process %d at %s", self.number + 1, self.pid, line.removeprefix("ready ").strip())
        return line.removeprefix("ready ").strip()

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.kill()


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def is_secret(name: str) -> bool:
    """Whether the value of a setting is a secret, or may be one because the name is unknown."""
    key = broker_key(name)
    return key is None or key.type is ConfigType.PASSWORD


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ClusterError(f"{text!r} is not an address; write HOST:PORT")
    return host, int(port)


def _ask_to_stop(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        raise SystemExit(1)
    stopping.set()
