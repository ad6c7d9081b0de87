"""Tests the builder of large requests, for every array of every API that is served."""

import time

import pytest
from frame_waits import SETTINGS, cases, measure, prepare
from large_requests import array_paths, build, client_versions, elements_at, with_body_tags, with_header_tags

from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api, versions_of
from headrace.protocol.wire.server_codec import open_request_body, read_request_body, read_request_header
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient, decode_response

COUNT = 300
#: Arrays whose elements have neither a name nor a number of their own.
ALIKE = {
    (Api.LIST_CONFIG_RESOURCES, ("resource_types",)),
    (Api.CREATE_PARTITIONS, ("topics", "assignments")),
    (Api.DELETE_ACLS, ("filters",)),
    (Api.ALTER_CLIENT_QUOTAS, ("entries",)),
}


def read(frame):
    header = read_request_header(memoryview(frame))
    return header, read_request_body(header, memoryview(frame))[0]


@pytest.mark.parametrize("api", served_apis(in_cluster=True), ids=lambda api: api.label)
def test_every_array_of_a_request_can_be_blown_up(api):
    for version in sorted({*client_versions(api), versions_of(api)[-1]}):
        for path in array_paths(api, version):
            header, body = read(build(api, version, COUNT, path))
            assert (header.api, header.version) == (api, version)
            elements = elements_at(body, path)
            assert len(elements) == COUNT
            if (api, path) not in ALIKE:
                assert len(set(map(repr, elements))) == COUNT, (version, path)


@pytest.mark.parametrize("add_tags", [with_header_tags, with_body_tags])
def test_unknown_tagged_fields_can_be_added_in_any_number(add_tags):
    frame = build(Api.METADATA, 12, 1)
    many = add_tags(frame, 2_000)
    assert len(many) == len(frame) + 2_000 * 5 + 1  # the count takes a byte more
    assert read(many)[1] == read(frame)[1]
    assert len(add_tags(frame, 1_000_000)) > 5_000_000


def test_a_million_elements_are_built_quickly():
    began = time.perf_counter()
    frame = build(Api.LIST_OFFSETS, 7, 1_000_000, ("topics", "partitions"))
    assert time.perf_counter() - began < 10  # it takes half a second on an idle machine
    assert len(frame) > 17_000_000
    view = memoryview(frame)
    assert sum(1 for _ in open_request_body(read_request_header(view), view)) > 1_000  # it is read to its end


def test_no_api_with_an_array_is_left_out():
    without = {api for api in served_apis(in_cluster=True) if not array_paths(api, versions_of(api)[-1])}
    assert without == {
        Api.CONTROLLED_SHUTDOWN,
        Api.HEARTBEAT,
        Api.SASL_HANDSHAKE,
        Api.API_VERSIONS,
        Api.INIT_PRODUCER_ID,
        Api.ADD_OFFSETS_TO_TXN,
        Api.END_TXN,
        Api.DESCRIBE_ACLS,
        Api.SASL_AUTHENTICATE,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_CLUSTER,
        Api.GET_TELEMETRY_SUBSCRIPTIONS,
        Api.PUSH_TELEMETRY,
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("large"), *SETTINGS) as process:
        yield process, prepare(process.address)


@pytest.mark.parametrize("oldest", [False, True], ids=["newest versions", "oldest versions"])
def test_a_broker_answers_each_of_them(served, oldest):
    process, subject = served
    for api, version, path in cases([], oldest=oldest):
        with RawClient(process.address) as client:
            client.send_frame(build(api, version, COUNT, path, subject))
            try:
                decode_response(api, version, client.read_frame())
            except ClosedByPeer:
                pytest.fail(f"{api.label} v{version} {path}: {process.log[-2_000:]}")
    assert "ERROR" not in process.log


def test_a_bystander_waits_while_a_request_is_served(served):
    process, _ = served
    measured = measure(process.address, build(Api.METADATA, 12, 20_000))  # without an id, so that the names differ
    assert measured.answer_bytes > 20_000
    assert 0 < measured.longest_wait_ms < measured.answer_ms + 1_000
