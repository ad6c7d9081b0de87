"""ApiVersions: the table of supported versions, and the answer to clients with newer ones."""

from struct import pack, unpack_from

import pytest
from broker_harness import all_versions

from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import decode_response


def ask(client, version=3, name="test", software_version="1.0"):
    fields = {"client_software_name": name, "client_software_version": software_version}
    return client.ask(Api.API_VERSIONS, version, **fields)


@pytest.mark.parametrize("version", all_versions(Api.API_VERSIONS))
def test_every_version(client, version):
    answer = ask(client, version)
    assert answer.error_code == 0
    keys = {entry.api_key for entry in answer.api_keys}
    assert {Api.PRODUCE, Api.FETCH, Api.METADATA, Api.API_VERSIONS} <= keys


def test_the_table_is_what_has_a_handler(client, ours):
    table = {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in ask(client).api_keys}
    with_a_subscription_only = {Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY}
    table |= {api: versions_of(api) for api in with_a_subscription_only}
    assert sorted(table) == sorted(served_apis(in_cluster=False))
    for api in served_apis(in_cluster=False):
        spoken = versions_of(api)
        assert table[api].stop == spoken.stop
        assert table[api].start == (0 if api is Api.PRODUCE else spoken.start)


@pytest.mark.parametrize("version", [99, 5])
def test_a_newer_client_is_told_in_v0(client, version):
    client.send_frame(pack(">hhih", Api.API_VERSIONS, version, 42, -1) + bytes(10))
    frame = client.read_frame()
    assert unpack_from(">i", frame) == (42,)
    answer = decode_response(Api.API_VERSIONS, 0, frame)
    assert answer.error_code == ErrorCode.unsupported_version
    assert Api.API_VERSIONS in {entry.api_key for entry in answer.api_keys}
    assert ask(client).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("-x", "1"), ("x", ""), ("", "1"), ("a b", "1"), ("x", "1-")])
def test_odd_software_names(client, name, version):
    answer = ask(client, 3, name, version)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())


def test_a_client_that_says_nothing_about_itself_in_old_versions(client):
    assert ask(client, 0).error_code == 0


def test_the_clients_software_is_remembered(shared_broker, client):
    ask(client, 3, "apache-kafka-java", "4.3.0")
    known = {connection.client_software for connection in shared_broker.core.connections}
    assert ("apache-kafka-java", "4.3.0") in known


@pytest.mark.parametrize(
    ("version", "ranges"), [(3, {}), (4, {"group.version": (0, 1), "transaction.version": (0, 2)})]
)
def test_features_that_clients_look_at(client, version, ranges):
    answer = ask(client, version)
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    assert levels.items() >= {"group.version": (1, 1), "transaction.version": (2, 2)}.items()
    assert answer.finalized_features_epoch >= 0
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert {name: each for name, each in supported.items() if name in levels and each[0] == 0}.items() >= ranges.items()
    assert version >= 4 or all(minimum > 0 for minimum, _ in supported.values())
