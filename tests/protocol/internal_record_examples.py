"""Records of the internal topics as Apache Kafka 4.3.0 writes them.

The fields were given to Kafka's own generated classes (by their JSON converters), which wrote the bytes. A field that a
version does not have is given all the same: a writer of that version leaves the field out.
"""

from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.internal_records import RecordType


class Golden(NamedTuple):
    type: RecordType
    version: int
    key: dict[str, Any]
    value: dict[str, Any]
    key_hex: str
    value_hex: str


T = RecordType
ORDERS = UUID("1f98b73e-5425-4cc6-bccd-01d4bcc23050")
OTHER = UUID("00000000-0000-0001-0000-000000000002")

OFFSET_KEY = {"group": "billing", "topic": "orders", "partition": 7}
LONG_KEY = {"group": "", "topic": "t" * 130, "partition": 0}
OFFSET = {
    "offset": 1234567890123,
    "leader_epoch": 5,
    "metadata": "né😀",
    "commit_timestamp": 1700000000000,
    "expire_timestamp": 1700000600000,
    "topic_id": ORDERS,
}
BARE_OFFSET = {**OFFSET, "offset": 0, "leader_epoch": -1, "metadata": "m" * 200, "topic_id": None}

CLASSIC_KEY = {"group": "billing"}
STATIC_MEMBER = {
    "member_id": "c-1-abc",
    "group_instance_id": "static-1",
    "client_id": "c-1",
    "client_host": "/127.0.0.1",
    "rebalance_timeout": 300000,
    "session_timeout": 45000,
    "subscription": bytes.fromhex("0001000000010001740000ff"),
    "assignment": b"\x00\x01",
}
DYNAMIC_MEMBER = {
    **STATIC_MEMBER,
    "member_id": "c-2",
    "group_instance_id": None,
    "subscription": b"",
    "assignment": b"x" * 200,
}
STABLE = {
    "protocol_type": "consumer",
    "generation": 12,
    "protocol": "range",
    "leader": "c-1-abc",
    "current_state_timestamp": 1700000000001,
    "members": [STATIC_MEMBER, DYNAMIC_MEMBER],
}
EMPTY = {**STABLE, "protocol_type": "", "generation": 0, "protocol": None, "leader": None, "members": []}

GROUP_KEY = {"group_id": "billing"}
MEMBER_KEY = {"group_id": "billing", "member_id": "m-1"}
REGEX_KEY = {"group_id": "billing", "regular_expression": "or.*"}
PARTITIONS = {
    "topics": [
        {
            "topic_id": ORDERS,
            "topic_name": "orders",
            "num_partitions": 2,
            "partition_metadata": [{"partition": 0, "racks": ["r1", "r2"]}, {"partition": 1, "racks": []}],
        },
        {"topic_id": OTHER, "topic_name": "x", "num_partitions": 1, "partition_metadata": []},
    ]
}
MEMBER = {
    "instance_id": None,
    "rack_id": None,
    "client_id": "c",
    "client_host": "/10.0.0.1",
    "subscribed_topic_names": ["a", "b"],
    "subscribed_topic_regex": None,
    "rebalance_timeout_ms": 45000,
    "server_assignor": None,
    "classic_member_metadata": None,
}
UPGRADED_MEMBER = {
    **MEMBER,
    "instance_id": "i",
    "rack_id": "r",
    "subscribed_topic_names": [],
    "subscribed_topic_regex": "or.*",
    "server_assignor": "uniform",
    "classic_member_metadata": {
        "session_timeout_ms": 45000,
        "supported_protocols": [
            {"name": "range", "metadata": b"\x00\x03"},
            {"name": "sticky", "metadata": b"y" * 150},
        ],
    },
}
TARGET = {"topic_partitions": [{"topic_id": ORDERS, "partitions": [0, 1, 2]}, {"topic_id": OTHER, "partitions": []}]}
CURRENT = {
    "member_epoch": 5,
    "previous_member_epoch": 4,
    "state": 1,
    "assigned_partitions": [{"topic_id": ORDERS, "partitions": [0, 1], "assignment_epochs": [4, 5]}],
    "partitions_pending_revocation": [{"topic_id": OTHER, "partitions": [9], "assignment_epochs": None}],
}

TRANSACTION_KEY = {"transactional_id": "copier-1"}
OLD_ONGOING = {
    "producer_id": 4000,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "producer_epoch": 3,
    "next_producer_epoch": -1,
    "transaction_timeout_ms": 60000,
    "transaction_status": 1,
    "transaction_partitions": [
        {"topic": "orders", "partition_ids": [0, 1, 5]},
        {"topic": "__consumer_offsets", "partition_ids": [10]},
    ],
    "transaction_last_update_timestamp_ms": 1700000000002,
    "transaction_start_timestamp_ms": 1700000000000,
    "client_transaction_version": 0,
}
ONGOING = {
    **OLD_ONGOING,
    "previous_producer_id": 3999,
    "next_producer_id": 4001,
    "next_producer_epoch": 0,
    "client_transaction_version": 2,
}
NO_TRANSACTION = {
    **OLD_ONGOING,
    "transaction_status": 0,
    "transaction_partitions": None,
    "transaction_start_timestamp_ms": -1,
}

GOLDEN = [
    Golden(
        T.LEGACY_OFFSET_COMMIT,
        0,
        OFFSET_KEY,
        OFFSET,
        "0000000762696c6c696e6700066f726465727300000007",
        "00000000011f71fb04cb00076ec3a9f09f98800000018bcfe56800",
    ),
    Golden(
        T.OFFSET_COMMIT,
        0,
        OFFSET_KEY,
        OFFSET,
        "0001000762696c6c696e6700066f726465727300000007",
        "00000000011f71fb04cb00076ec3a9f09f98800000018bcfe56800",
    ),
    Golden(
        T.OFFSET_COMMIT,
        1,
        OFFSET_KEY,
        OFFSET,
        "0001000762696c6c696e6700066f726465727300000007",
        "00010000011f71fb04cb00076ec3a9f09f98800000018bcfe568000000018bcfee8fc0",
    ),
    Golden(
        T.OFFSET_COMMIT,
        2,
        OFFSET_KEY,
        OFFSET,
        "0001000762696c6c696e6700066f726465727300000007",
        "00020000011f71fb04cb00076ec3a9f09f98800000018bcfe56800",
    ),
    Golden(
        T.OFFSET_COMMIT,
        3,
        OFFSET_KEY,
        OFFSET,
        "0001000762696c6c696e6700066f726465727300000007",
        "00030000011f71fb04cb0000000500076ec3a9f09f98800000018bcfe56800",
    ),
    Golden(
        T.OFFSET_COMMIT,
        4,
        OFFSET_KEY,
        OFFSET,
        "0001000762696c6c696e6700066f726465727300000007",
        "00040000011f71fb04cb00000005086ec3a9f09f98800000018bcfe568000100101f98b73e54254cc6bccd01d4bcc23050",
    ),
    Golden(
        T.OFFSET_COMMIT,
        4,
        LONG_KEY,
        BARE_OFFSET,
        (
            "0001000000827474747474747474747474747474747474747474747474747474747474747474747474747474747474747474"
            "7474747474747474747474747474747474747474747474747474747474747474747474747474747474747474747474747474"
            "74747474747474747474747474747474747474747474747474747474747474747474747400000000"
        ),
        (
            "00040000000000000000ffffffffc9016d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d"
            "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d"
            "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d"
            "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d"
            "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d0000018bcfe5680000"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        0,
        CLASSIC_KEY,
        STABLE,
        "0002000762696c6c696e67",
        (
            "00000008636f6e73756d65720000000c000572616e67650007632d312d616263000000020007632d312d6162630003632d31"
            "000a2f3132372e302e302e310000afc80000000c0001000000010001740000ff0000000200010003632d320003632d31000a"
            "2f3132372e302e302e310000afc800000000000000c878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "78787878787878787878787878787878787878787878"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        1,
        CLASSIC_KEY,
        STABLE,
        "0002000762696c6c696e67",
        (
            "00010008636f6e73756d65720000000c000572616e67650007632d312d616263000000020007632d312d6162630003632d31"
            "000a2f3132372e302e302e31000493e00000afc80000000c0001000000010001740000ff0000000200010003632d32000363"
            "2d31000a2f3132372e302e302e31000493e00000afc800000000000000c87878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "787878787878787878787878787878787878787878787878787878787878"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        2,
        CLASSIC_KEY,
        STABLE,
        "0002000762696c6c696e67",
        (
            "00020008636f6e73756d65720000000c000572616e67650007632d312d6162630000018bcfe56801000000020007632d312d"
            "6162630003632d31000a2f3132372e302e302e31000493e00000afc80000000c0001000000010001740000ff000000020001"
            "0003632d320003632d31000a2f3132372e302e302e31000493e00000afc800000000000000c8787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        3,
        CLASSIC_KEY,
        STABLE,
        "0002000762696c6c696e67",
        (
            "00030008636f6e73756d65720000000c000572616e67650007632d312d6162630000018bcfe56801000000020007632d312d"
            "61626300087374617469632d310003632d31000a2f3132372e302e302e31000493e00000afc80000000c0001000000010001"
            "740000ff0000000200010003632d32ffff0003632d31000a2f3132372e302e302e31000493e00000afc800000000000000c8"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        4,
        CLASSIC_KEY,
        STABLE,
        "0002000762696c6c696e67",
        (
            "000409636f6e73756d65720000000c0672616e676508632d312d6162630000018bcfe568010308632d312d61626309737461"
            "7469632d3104632d310b2f3132372e302e302e31000493e00000afc80d0001000000010001740000ff0300010004632d3200"
            "04632d310b2f3132372e302e302e31000493e00000afc801c901787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "78787878787878787878787878787878787878787878787878780000"
        ),
    ),
    Golden(
        T.GROUP_METADATA,
        3,
        CLASSIC_KEY,
        EMPTY,
        "0002000762696c6c696e67",
        "0003000000000000ffffffff0000018bcfe5680100000000",
    ),
    Golden(T.GROUP_METADATA, 4, CLASSIC_KEY, EMPTY, "0002000762696c6c696e67", "0004010000000000000000018bcfe568010100"),
    Golden(
        T.CONSUMER_GROUP_METADATA,
        0,
        GROUP_KEY,
        {"epoch": 3, "metadata_hash": 0},
        "0003000762696c6c696e67",
        "00000000000300",
    ),
    Golden(
        T.CONSUMER_GROUP_METADATA,
        0,
        GROUP_KEY,
        {"epoch": 4, "metadata_hash": -81985529216486896},
        "0003000762696c6c696e67",
        "000000000004010008fedcba9876543210",
    ),
    Golden(
        T.CONSUMER_GROUP_PARTITION_METADATA,
        0,
        GROUP_KEY,
        PARTITIONS,
        "0004000762696c6c696e67",
        (
            "0000031f98b73e54254cc6bccd01d4bcc23050076f7264657273000000020300000000030372310372320000000001010000"
            "00000000000000010000000000000002027800000001010000"
        ),
    ),
    Golden(
        T.CONSUMER_GROUP_MEMBER_METADATA,
        0,
        MEMBER_KEY,
        MEMBER,
        "0005000762696c6c696e6700036d2d31",
        "0000000002630a2f31302e302e302e310302610262000000afc80001000100",
    ),
    Golden(
        T.CONSUMER_GROUP_MEMBER_METADATA,
        0,
        MEMBER_KEY,
        UPGRADED_MEMBER,
        "0005000762696c6c696e6700036d2d31",
        (
            "00000269027202630a2f31302e302e302e3101056f722e2a0000afc808756e69666f726d0100b101010000afc8030672616e"
            "67650300030007737469636b7997017979797979797979797979797979797979797979797979797979797979797979797979"
            "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
            "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
            "7979797979797979797979797979790000"
        ),
    ),
    Golden(
        T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        0,
        GROUP_KEY,
        {"assignment_epoch": 5, "assignment_timestamp": 0},
        "0006000762696c6c696e67",
        "00000000000500",
    ),
    Golden(
        T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        0,
        GROUP_KEY,
        {"assignment_epoch": 5, "assignment_timestamp": 1700000000000},
        "0006000762696c6c696e67",
        "0000000000050100080000018bcfe56800",
    ),
    Golden(
        T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        0,
        MEMBER_KEY,
        TARGET,
        "0007000762696c6c696e6700036d2d31",
        ("0000031f98b73e54254cc6bccd01d4bcc23050040000000000000001000000020000000000000000010000000000000002010000"),
    ),
    Golden(
        T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        0,
        MEMBER_KEY,
        CURRENT,
        "0008000762696c6c696e6700036d2d31",
        (
            "0000000000050000000401021f98b73e54254cc6bccd01d4bcc2305003000000000000000101000903000000040000000502"
            "0000000000000001000000000000000202000000090000"
        ),
    ),
    Golden(
        T.CONSUMER_GROUP_REGULAR_EXPRESSION,
        0,
        REGEX_KEY,
        {"topics": ["orders", "oranges"], "version": 17, "timestamp": 1700000000000},
        "0010000762696c6c696e6700046f722e2a",
        "000003076f7264657273086f72616e67657300000000000000110000018bcfe5680000",
    ),
    Golden(
        T.TRANSACTION,
        0,
        TRANSACTION_KEY,
        OLD_ONGOING,
        "00000008636f706965722d31",
        (
            "00000000000000000fa000030000ea60010000000200066f72646572730000000300000000000000010000000500125f5f63"
            "6f6e73756d65725f6f666673657473000000010000000a0000018bcfe568020000018bcfe56800"
        ),
    ),
    Golden(
        T.TRANSACTION,
        1,
        TRANSACTION_KEY,
        ONGOING,
        "00000008636f706965722d31",
        (
            "00010000000000000fa000030000ea600103076f72646572730400000000000000010000000500135f5f636f6e73756d6572"
            "5f6f666673657473020000000a000000018bcfe568020000018bcfe568000400080000000000000f9f01080000000000000f"
            "a10202000203020000"
        ),
    ),
    Golden(
        T.TRANSACTION,
        0,
        TRANSACTION_KEY,
        NO_TRANSACTION,
        "00000008636f706965722d31",
        "00000000000000000fa000030000ea6000ffffffff0000018bcfe56802ffffffffffffffff",
    ),
    Golden(
        T.TRANSACTION,
        1,
        TRANSACTION_KEY,
        NO_TRANSACTION,
        "00000008636f706965722d31",
        "00010000000000000fa000030000ea6000000000018bcfe56802ffffffffffffffff00",
    ),
]

#: A text, its hash in Java, and the partition of 50 that Kafka puts it in.
HASHES = [
    ("", 0, 0),
    ("hello", 99162322, 22),
    ("billing", -109829509, 9),
    ("my-group-name", -1499318310, 10),
    ("polygenelubricants", -2147483648, 0),
    ("groupe-é-😀", 1214321774, 24),
]
