"""Members of classic groups over the wire, each with a connection of its own."""

from contextlib import contextmanager

from broker_harness import Client, unique

from headrace.protocol.api import Api

#: Version 0, one topic "t", no user data. Apache Kafka never answers members whose metadata it cannot read.
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")
PROTOCOLS = (("range", SUBSCRIPTION),)


def find_coordinator(client, *keys, version=4, key_type=0):
    """The answers by key; one key's answer alone before v4."""
    if version < 4:
        (key,) = keys
        return client.ask(Api.FIND_COORDINATOR, version, key=key, key_type=key_type)
    answer = client.ask(Api.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=keys)
    return {each.key: each for each in answer.coordinators}


def join_request(group, member_id="", protocols=PROTOCOLS, instance_id=None, **fields):
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
        "reason": None,
        **fields,
    }


class Member(Client):
    """``version`` is that of JoinGroup; the other requests have the newest unless told."""

    def __init__(self, address, group, *, version=9, instance_id=None, protocols=PROTOCOLS, **fields):
        super().__init__(address, client_id="tester")
        self.group = group
        self.version = version
        self.fields = {"instance_id": instance_id, "protocols": protocols, **fields}
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.joined = None
        find_coordinator(self, group)

    def send_join(self):
        """Does not wait: the answer may need other members."""
        self.send(Api.JOIN_GROUP, self.version, **join_request(self.group, self.member_id, **self.fields))

    def receive_join(self):
        joined = self.receive()
        if joined.error_code == 79:
            self.member_id = joined.member_id
            self.send_join()
            joined = self.receive()
        self.joined, self.member_id, self.generation_id = joined, joined.member_id, joined.generation_id
        return joined

    def join(self):
        self.send_join()
        return self.receive_join()

    def ask_for_id(self):
        """Before the join itself, so that others know that this one comes."""
        answer = self.ask(Api.JOIN_GROUP, self.version, **join_request(self.group, "", **self.fields))
        assert answer.error_code == 79, answer
        self.member_id = answer.member_id

    def assignments(self):
        return [
            {"member_id": each.member_id, "assignment": b"part of " + each.member_id.encode()}
            for each in self.joined.members
        ]

    def send_sync(self, version=5, assignments=None, **fields):
        fields = {
            "group_id": self.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": self.assignments() if assignments is None else assignments,
            **fields,
        }
        self.send(Api.SYNC_GROUP, version, **fields)

    def sync(self, version=5, assignments=None, **fields):
        self.send_sync(version, assignments, **fields)
        return self.receive()

    def heartbeat(self, version=4, **fields):
        fields = {
            "group_id": self.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **fields,
        }
        return self.ask(Api.HEARTBEAT, version, **fields).error_code

    def leave(self, *members, version=5):
        """This member, or others given as ``(member id, instance id)``."""
        if version < 3:
            return self.ask(Api.LEAVE_GROUP, version, group_id=self.group, member_id=self.member_id)
        members = members or [(self.member_id, self.instance_id)]
        named = [{"member_id": each, "group_instance_id": instance, "reason": None} for each, instance in members]
        return self.ask(Api.LEAVE_GROUP, version, group_id=self.group, members=named)


def rejoin(leader, *others):
    """The leader and all others go into the next generation together."""
    if others:
        leader.send_join()
        for each in others:
            each.send_join()
        for each in (leader, *others):
            assert each.receive_join().error_code == 0


@contextmanager
def members(address, count=1, group=None, **fields):
    """Members of one new group that have joined and synced together, the leader first."""
    group = group or unique("group")
    made = [Member(address, group, **fields) for _ in range(count)]
    try:
        first, *others = made
        first.join()
        first.sync()
        for each in others:
            each.ask_for_id()  # a rebalance waits for all who have an id
        rejoin(first, *others)
        for each in made:
            assert each.sync().error_code == 0
        yield made
    finally:
        for each in made:
            each.close()
