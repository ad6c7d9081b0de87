"""The listeners that a broker has opened. They follow the settings while the broker runs (KIP-226).

A change of ``listeners`` opens and closes listeners by their names. Connections to the other listeners do not notice.
A listener whose address changes is opened at the new address, and keeps its connections. A listener whose protocol
changes is closed and opened again. The connections of a listener that is closed are answered first, if a request of
theirs is in progress; one of them may be the client that closes the listener.

Before a change is stored, :meth:`OpenListeners.check` reads the key stores of new listeners, and tries their addresses.
So a client learns at once that an address is taken. Kafka stores the change, and logs the error.

At a start the listeners of the broker's file are opened first: a taken port is known before anything is changed. The
stored settings are known later, and may add and remove listeners (:meth:`OpenListeners.use_stored_settings`).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from logging import getLogger

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.listeners import ListenerAddress
from headrace.broker.network.listener import Listener, ListenerContext, bound_socket
from headrace.broker.start_error import StartError
from headrace.properties import ConfigError

logger = getLogger(__name__)

_SETTINGS = frozenset({"listeners", "advertised.listeners", "listener.security.protocol.map"})
#: A closed listener looks at this interval whether its connections were answered.
_LOOK_AGAIN_MS = 50
#: After this number of looks the listener no longer waits for its connections.
_LOOKS = 100


class OpenListeners:
    def __init__(
        self,
        context: ListenerContext,
        listener_class: type[Listener],
        endpoints: dict[str, tuple[str, int]],
        *,
        load_logins: Callable[[], Awaitable[None]],
        on_addresses_changed: Callable[[], Coroutine[None, None, None]],
        run_soon: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """
        :param endpoints: has the addresses of all open listeners by name. It is changed here.
        :param load_logins: prepares logins on the listeners of the present settings.
        :param on_addresses_changed: is called when clients must use other addresses.
        """
        self._context = context
        self._config = context.config
        self._listener_class = listener_class
        self._endpoints = endpoints
        self._load_logins = load_logins
        self._on_addresses_changed = on_addresses_changed
        self._run_soon = run_soon
        self._listeners: dict[str, Listener] = {}
        #: Closed listeners that still have connections.
        self._ending: set[Listener] = set()

    def __iter__(self) -> Iterator[Listener]:
        return iter(tuple(self._listeners.values()))

    # -- start

    def bind(self) -> None:
        """Binds the addresses of the settings.

        :raises StartError: if an address is taken.
        """
        for address in self._config.listeners.bound:
            self._bind_first(address)

    def _bind_first(self, address: ListenerAddress) -> None:
        try:
            self._add(address)
        except OSError as error:
            raise StartError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from None

    def use_stored_settings(self) -> bool:
        """Opens and closes listeners by the stored settings, and reads all stores. Follows the settings from now on.

        :returns: whether an address differs from that of :meth:`bind`.
        :raises StartError: if an address is taken, or a store cannot be used.
        """
        before = dict(self._endpoints)
        wanted = {address.name: address for address in self._config.listeners.bound}
        for listener in self:
            if wanted.get(listener.name) != listener.address:
                self._remove(listener)
        for address in wanted.values():
            if address.name not in self._listeners:
                self._bind_first(address)
        for listener in self:
            try:
                listener.load_tls()
            except ConfigError as error:
                raise StartError(f"cannot use TLS on listener {listener.name}: {error}") from None
        self._config.on_any_change(self._settings_changed)
        self._config.add_check(self.check)
        return self._endpoints != before

    def accept_connections(self) -> None:
        for listener in self:
            listener.accept_connections()

    # -- changes

    def check(self, future: BrokerConfig) -> None:
        """
        :raises ConfigError: if a listener of the future settings cannot be opened, or an open one cannot become so.
        """
        wanted = {address.name: address for address in future.listeners.bound}
        stays = {name for name, listener in self._listeners.items() if listener.address == wanted.get(name)}
        freed = {self._endpoints[listener.name][1] for listener in self if listener.name not in stays}
        for name, address in wanted.items():
            if name in stays:
                continue
            present = self._listeners.get(name)
            if present is None:
                _check_tls(address, future)
            elif present.address.protocol is not address.protocol:
                raise ConfigError(
                    f"Security protocol cannot be updated for existing listener {name}, remove the listener first"
                )
            if address.port not in freed:
                _check_address(address)

    def _settings_changed(self, names: frozenset[str]) -> None:
        if not names & _SETTINGS:
            return
        wanted = {address.name: address for address in self._config.listeners.bound}
        for listener in self:
            address = wanted.get(listener.name)
            if address is None or address.protocol is not listener.address.protocol:
                self._remove(listener)
        for address in wanted.values():
            try:
                self._open(address)
            except (OSError, ConfigError) as error:
                logger.error("listener %s cannot be opened: %s", address, error)
        self._run_soon(self._on_addresses_changed())

    def _open(self, address: ListenerAddress) -> None:
        """
        :raises OSError: if the address is taken.
        :raises ConfigError: if the settings cannot be used.
        """
        listener = self._listeners.get(address.name)
        if listener is not None:
            if listener.address != address:
                self._endpoints[address.name] = listener.move(address)
                logger.info("listener %s has moved", address)
            return
        listener = self._add(address)
        try:
            listener.load_tls()
        except ConfigError:
            self._remove(listener)
            raise
        listener.listen()
        if address.protocol.has_sasl:
            self._run_soon(self._accept_after_logins(listener))
        else:
            listener.accept_connections()
        logger.info("listener %s is open", address)

    async def _accept_after_logins(self, listener: Listener) -> None:
        """Accepts connections when logins are possible. They wait in the kernel's backlog until then."""
        try:
            await self._load_logins()
        except StartError as error:
            logger.error("listener %s cannot be opened: %s", listener.address, error)
            self._remove(listener)
            return
        if self._listeners.get(listener.name) is listener:
            listener.accept_connections()

    def _add(self, address: ListenerAddress) -> Listener:
        """
        :raises OSError: if the address is taken.
        """
        listener = self._listener_class(address, self._context)
        self._endpoints[address.name] = listener.bind()
        self._listeners[address.name] = listener
        return listener

    def _remove(self, listener: Listener) -> None:
        del self._listeners[listener.name]
        del self._endpoints[listener.name]
        listener.close()
        listener.ignore_settings()
        self._ending.add(listener)
        connections = [each for each in self._context.connections if each.listener_name == listener.name]
        if connections:
            logger.info("listener %s is closed, with %d connections", listener.address, len(connections))

        def close_answered(looks_left: int) -> None:
            for connection in connections:
                if looks_left == 0 or not connection.is_busy:
                    connection.send_held()
                    connection.close()
            connections[:] = [each for each in connections if not each.is_closed]
            if connections:
                self._context.timer.schedule(_LOOK_AGAIN_MS, lambda: close_answered(looks_left - 1))
            else:
                self._ending.discard(listener)
                listener.stop_threads()

        close_answered(_LOOKS)

    # -- stop

    def close(self) -> None:
        """Accepts no more connections. Open connections stay open."""
        for listener in self:
            listener.close()

    def stop_threads(self) -> None:
        """Ends the network threads. All connections have been closed."""
        for listener in (*self, *self._ending):
            listener.stop_threads()


def _check_tls(address: ListenerAddress, config: BrokerConfig) -> None:
    """
    :raises ConfigError: if the listener's stores cannot be used.
    """
    if address.protocol.has_tls:
        from headrace.broker.network.listener_tls import ListenerTls  # a broker without TLS does not load ssl

        ListenerTls.load(address.name, address.protocol, config)


def _check_address(address: ListenerAddress) -> None:
    """
    :raises ConfigError: if the address is taken, or is not an address of this machine.
    """
    try:
        sock: socket.socket = bound_socket(address)
    except OSError as error:
        raise ConfigError(f"Cannot listen on {address}: {error.strerror}") from None
    sock.close()
