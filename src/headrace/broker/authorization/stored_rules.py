"""Reads the rules from the znode tree, follows their changes, and changes them.

``security/acls/znodes.py`` has the paths and contents. All rules are in memory (:class:`RuleIndex`). Every broker
watches the notifications of changes, and reads the patterns that they name, so a change is in force on all brokers as
soon as ZooKeeper has told them. A broker without a session keeps the rules that it has read, as Kafka does, and reads
all of them again in its next session.

A change reads the znode of its pattern, and writes it only if nobody has changed it since (by its version). Otherwise
it starts again. So concurrent changes on several brokers lose nothing, and the removal of one rule never removes
another one. The write and its notification are one ``multi``: no change stays without a notification, whatever fails.
If an answer is lost, the change starts again, too: to add or to remove the same rules twice does no harm.

Rules that cannot be read are never ignored. At the start they stop the broker. Later, every operation on the resources
of the pattern is denied until its znode can be read; super users can repair it.

The follower's lock orders all reads and writes (``tree/follower.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.tree.follower import TreeFollower
from headrace.broker.tree.reads import read_each
from headrace.coordination.interface import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
)
from headrace.protocol.errors import InvalidRequest, UnknownServerError
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.kinds import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    Permission,
    ResourceType,
)
from headrace.security.acls.znodes import (
    CHANGE_NAME,
    CHANGES,
    MAX_ZNODE_BYTES,
    OWN_ROOTS,
    PERSISTENT_PATHS,
    ROOTS,
    MalformedRulesError,
    changes_path,
    decode_change,
    decode_rules,
    encode_change,
    encode_rules,
    own_pattern,
    pattern_path,
)

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock
    from headrace.security.acls.rule_index import RuleIndex

logger = getLogger(__name__)

#: From the stored rules of a pattern to the rules to store.
Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]

#: How often a change starts again because other brokers were faster. One of them succeeds each time.
_MAX_ATTEMPTS = 100
#: In force for a pattern whose rules cannot be read.
_DENY_ALL = AclEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, Permission.DENY)
_RACES = (BadVersionError, NodeExistsError, NoNodeError, ConnectionLostError)


class StoredRules:
    def __init__(
        self, coordination: Coordination, clock: Clock, index: RuleIndex, *, on_changed: Callable[[], object]
    ) -> None:
        """
        :param on_changed: is called when the index has changed.
        """
        self._coordination = coordination
        self._index = index
        self._on_changed = on_changed
        self._follower = TreeFollower(
            coordination, clock, "ACLs", read_all=partial(self._read_all, refuse_malformed=False)
        )
        for parent in CHANGES:
            self._follower.watch(parent, CHANGE_NAME, self._applier_of(parent))

    # -- life cycle

    async def load(self) -> None:
        """Reads all rules.

        :raises MalformedRulesError: if a znode has no rules that can be read.
        :raises CoordinationError: if the tree does not answer.
        """
        await self._create_paths()
        await self._follower.load(partial(self._read_all, refuse_malformed=True))

    def start(self) -> None:
        self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()

    async def _create_paths(self) -> None:
        for path in PERSISTENT_PATHS:
            with suppress(NodeExistsError):
                await self._coordination.create(path)

    # -- following changes

    async def catch_up(self) -> None:
        """Applies all changes that other brokers have announced."""
        await self._follower.catch_up()

    def _applier_of(self, parent: str) -> Callable[[bytes], Awaitable[None]]:
        async def apply(content: bytes) -> None:
            try:
                pattern = decode_change(parent, content)
            except MalformedRulesError as error:
                logger.error("a notification of changed ACLs names no resource, so all ACLs are read again: %s", error)
                self._follower.read_again()
                return
            self._put(pattern, await self._read(pattern))

        return apply

    # -- reading

    async def _read_all(self, *, refuse_malformed: bool) -> None:
        patterns = await self._patterns()
        for gone in set(self._index.patterns()) - set(patterns):
            self._put(gone, frozenset())
        async for pattern, entries in read_each(partial(self._read, refuse_malformed=refuse_malformed), patterns):
            self._put(pattern, entries)

    async def _patterns(self) -> list[AclPattern]:
        found: list[AclPattern] = []
        for pattern_type, root in ROOTS.items():
            for title in await self._coordination.children(root):
                try:
                    resource_type = ResourceType.of_name(title)
                except ValueError:
                    logger.warning("the ACLs in %s/%s are ignored: there is no such type of resource", root, title)
                    continue
                names = await self._coordination.children(f"{root}/{title}")
                found += [AclPattern(resource_type, name, pattern_type) for name in names]
        for pattern_type, root in OWN_ROOTS.items():
            found += [own_pattern(pattern_type, name) for name in await self._coordination.children(root)]
        return found

    async def _read(self, pattern: AclPattern, *, refuse_malformed: bool = False) -> frozenset[AclEntry]:
        """Returns the rules of a pattern; if they cannot be read, a rule that denies everything."""
        path = pattern_path(pattern)
        try:
            return decode_rules((await self._coordination.get(path))[0])
        except NoNodeError:
            return frozenset()
        except MalformedRulesError as error:
            if refuse_malformed:
                raise MalformedRulesError(f"the ACLs in {path} cannot be read: {error}") from None
            logger.error("the ACLs in %s cannot be read, so everything is denied there: %s", path, error)
            return frozenset({_DENY_ALL})

    def _put(self, pattern: AclPattern, entries: frozenset[AclEntry]) -> None:
        if self._index.replace(pattern, entries):
            self._on_changed()

    # -- changing

    async def change(self, pattern: AclPattern, change: Change) -> None:
        """Changes the rules of one pattern. They are in force on this broker when the method returns.

        :raises KafkaError: if the rules cannot be stored.
        """
        async with self._follower.lock:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    self._put(pattern, await self._try_change(pattern, change))
                    return
                except _RACES as error:
                    logger.debug("the change of the ACLs of %s starts again: %r", pattern, error)
                    if isinstance(error, NoNodeError):
                        await self._create_paths()
                except CoordinationError as error:
                    raise UnknownServerError(f"the ACLs of {pattern} cannot be stored now: {error!r}") from error
        raise UnknownServerError(f"the ACLs of {pattern} change too often; try again")

    async def _try_change(self, pattern: AclPattern, change: Change) -> frozenset[AclEntry]:
        path, stat = pattern_path(pattern), None
        stored: frozenset[AclEntry] = frozenset()
        try:
            content, stat = await self._coordination.get(path)
            stored = decode_rules(content)
        except NoNodeError:
            pass
        except MalformedRulesError as error:
            raise InvalidRequest(f"the ACLs in {path} cannot be read, and must be repaired first: {error}") from None
        wanted = change(stored)
        if wanted != stored:
            announce = Create(f"{changes_path(pattern)}/{CHANGE_NAME}", encode_change(pattern), sequence=True)
            await self._write([*_writes(path, stat, wanted), announce])
        return wanted

    async def _write(self, operations: list[Operation]) -> None:
        try:
            await self._coordination.multi(operations)
        except NotEmptyError:  # somebody has made a znode below a pattern; it keeps its znode, without rules
            delete = operations[0]
            assert isinstance(delete, Delete)
            operations[0] = SetData(delete.path, encode_rules(()), delete.version)
            await self._coordination.multi(operations)


def _writes(path: str, stat: Stat | None, wanted: Iterable[AclEntry]) -> list[Operation]:
    """Returns the operations that store the rules of a pattern, if its znode is still as it was read."""
    entries = frozenset(wanted)
    if not entries:
        return [] if stat is None else [Delete(path, stat.version)]
    content = encode_rules(entries)
    if len(content) > MAX_ZNODE_BYTES:
        raise InvalidRequest(
            f"{len(entries)} ACLs of one resource are more than ZooKeeper can store in one znode; "
            f"put some of them on a prefix of its name, or on User:*"
        )
    return [Create(path, content) if stat is None else SetData(path, content, stat.version)]
