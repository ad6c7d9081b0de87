"""Messages between brokers (keys 4 to 7), and their bytes as Apache Kafka 3.9.1's own classes write them."""

from uuid import UUID

_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
_HEAD = {"controller_id": 1, "controller_epoch": 8, "broker_epoch": 0x123456789}

_LED = {
    "partition_index": 3,
    "controller_epoch": 7,
    "leader": 2,
    "leader_epoch": 9,
    "isr": (2, 1),
    "partition_epoch": 11,
    "replicas": (1, 2, 3),
    "adding_replicas": (3,),
    "removing_replicas": (1,),
    "is_new": True,
    "leader_recovery_state": 1,
}
_PUBLISHED = {
    "partition_index": 3,
    "controller_epoch": 7,
    "leader": 2,
    "leader_epoch": 9,
    "isr": (2,),
    "zk_version": 11,
    "replicas": (1, 2),
    "offline_replicas": (1,),
}
_STOPPED = {"partition_index": 3, "leader_epoch": -2, "delete_partition": True}
_ENDPOINT = {"port": 9093, "host": "h2", "listener": "BETWEEN", "security_protocol": 3}

#: By key and kind. What a version does not have is not in its bytes.
MESSAGES = {
    (4, "request"): {
        **_HEAD,
        "topic_states": [{"topic_name": "orders", "topic_id": _ID, "partition_states": [_LED]}],
        "live_leaders": [{"broker_id": 2, "host_name": "h2", "port": 9093}],
    },
    (4, "response"): {
        "error_code": 11,
        "topics": [{"topic_id": _ID, "partition_errors": [{"partition_index": 3, "error_code": 56}]}],
    },
    (5, "request"): {**_HEAD, "topic_states": [{"topic_name": "orders", "partition_states": [_STOPPED]}]},
    (5, "response"): {
        "error_code": 77,
        "partition_errors": [{"topic_name": "orders", "partition_index": 3, "error_code": 74}],
    },
    (6, "request"): {
        **_HEAD,
        "is_k_raft_controller": True,
        "type": 2,
        "topic_states": [{"topic_name": "orders", "topic_id": _ID, "partition_states": [_PUBLISHED]}],
        "live_brokers": [{"id": 2, "endpoints": [_ENDPOINT], "rack": "r1"}],
    },
    (6, "response"): {"error_code": 11},
    (7, "request"): {"broker_id": 2, "broker_epoch": 0x123456789},
    (7, "response"): {
        "error_code": 41,
        "remaining_partitions": [{"topic_name": "orders", "partition_index": 3}],
    },
}

#: By key, kind and version.
GOLDEN = {
    (4, "request", 5): (
        "000000010000000800000001234567890002076f72646572730102030405060708090a0b0c0d0e0f1002000000030000"
        "000700000002000000090300000002000000010000000b04000000010000000200000003020000000302000000010100"
        "000200000002036832000023850000"
    ),
    (4, "request", 6): (
        "000000010000000800000001234567890002076f72646572730102030405060708090a0b0c0d0e0f1002000000030000"
        "000700000002000000090300000002000000010000000b04000000010000000200000003020000000302000000010101"
        "00000200000002036832000023850000"
    ),
    (4, "request", 7): (
        "00000001000000000800000001234567890002076f72646572730102030405060708090a0b0c0d0e0f10020000000300"
        "00000700000002000000090300000002000000010000000b040000000100000002000000030200000003020000000101"
        "0100000200000002036832000023850000"
    ),
    (4, "response", 5): "000b020102030405060708090a0b0c0d0e0f1002000000030038000000",
    (4, "response", 6): "000b020102030405060708090a0b0c0d0e0f1002000000030038000000",
    (4, "response", 7): "000b020102030405060708090a0b0c0d0e0f1002000000030038000000",
    (5, "request", 3): "0000000100000008000000012345678902076f72646572730200000003fffffffe01000000",
    (5, "request", 4): "000000010000000008000000012345678902076f72646572730200000003fffffffe01000000",
    (5, "response", 3): "004d02076f726465727300000003004a0000",
    (5, "response", 4): "004d02076f726465727300000003004a0000",
    (6, "request", 7): (
        "0000000100000008000000012345678902076f72646572730102030405060708090a0b0c0d0e0f100200000003000000"
        "07000000020000000902000000020000000b030000000100000002020000000100000200000002020000238503683208"
        "4245545745454e0003000372310000"
    ),
    (6, "request", 8): (
        "000000010100000008000000012345678902076f72646572730102030405060708090a0b0c0d0e0f1002000000030000"
        "0007000000020000000902000000020000000b0300000001000000020200000001000002000000020200002385036832"
        "084245545745454e0003000372310001000102"
    ),
    (6, "response", 7): "000b00",
    (6, "response", 8): "000b00",
    (7, "request", 2): "000000020000000123456789",
    (7, "request", 3): "00000002000000012345678900",
    (7, "response", 2): "00290000000100066f726465727300000003",
    (7, "response", 3): "002902076f7264657273000000030000",
}
