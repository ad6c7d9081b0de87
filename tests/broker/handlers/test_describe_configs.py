"""DescribeConfigs: values, and where each comes from."""

import pytest
from broker_harness import BROKER, TOPIC, all_versions, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

FROM_TOPIC, FROM_DEFAULT = 1, 5
BROKER_LOGGER = 8


def describe(client, kind, name, *, keys=None, version=4, **fields):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    fields = {"include_synonyms": False, "include_documentation": False, **fields}
    (result,) = client.ask(Api.DESCRIBE_CONFIGS, version, resources=[resource], **fields).results
    return result


@pytest.fixture
def short(client):
    return client.create_topic(retention_ms=5000)


@pytest.mark.parametrize("version", all_versions(Api.DESCRIBE_CONFIGS))
def test_every_version(client, short, version):
    result = describe(client, TOPIC, short, version=version)
    assert (result.error_code, result.error_message) == (0, "")
    assert (result.resource_type, result.resource_name) == (TOPIC, short)
    configs = {config.name: config for config in result.configs}
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5000", FROM_TOPIC, False)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", FROM_DEFAULT)
    assert len(configs) > 25
    if version >= 3:
        assert retention.config_type == 5


def test_only_what_was_asked_for(client, short):
    result = describe(client, TOPIC, short, keys=["retention.ms", "no.such.setting"])
    assert [config.name for config in result.configs] == ["retention.ms"]


def test_an_empty_list_asks_for_all(client, short):
    assert len(describe(client, TOPIC, short, keys=[]).configs) > 25


def test_synonyms(client, short):
    (config,) = describe(client, TOPIC, short, keys=["segment.bytes"], include_synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("log.segment.bytes", "1073741824", FROM_DEFAULT)
    ]
    (config,) = describe(client, TOPIC, short, keys=["retention.ms"], include_synonyms=True).configs
    assert (config.synonyms[0].name, config.synonyms[0].value, config.synonyms[0].source) == ("retention.ms", "5000", 1)


def test_documentation(client, short):
    (with_it,) = describe(client, TOPIC, short, keys=["retention.ms"], include_documentation=True).configs
    (without,) = describe(client, TOPIC, short, keys=["retention.ms"]).configs
    assert with_it.documentation
    assert without.documentation is None


def test_a_topic_that_is_not_there(client):
    result = describe(client, TOPIC, unique())
    assert (result.error_code, result.configs) == (ErrorCode.unknown_topic_or_partition, ())


@pytest.mark.parametrize("name", ["", "a b"])
def test_a_bad_topic_name(client, name):
    assert describe(client, TOPIC, name).error_code == ErrorCode.invalid_topic_exception


def test_this_broker(client):
    result = describe(client, BROKER, "0")
    configs = {config.name: config for config in result.configs}
    assert result.error_code == 0
    assert configs["num.io.threads"].value == "8"
    assert not configs["num.io.threads"].read_only
    assert configs["log.dirs"].read_only


@pytest.mark.parametrize("name", ["17", "me"])
def test_another_broker(client, name):
    assert describe(client, BROKER, name).error_code == ErrorCode.invalid_request


def test_the_default_of_all_brokers_has_only_what_is_set(client, ours):
    result = describe(client, BROKER, "")
    assert (result.error_code, result.configs) == (0, ())


@pytest.mark.parametrize("kind", [0, 99])
def test_other_resources(client, kind):
    assert describe(client, kind, "x").error_code == ErrorCode.invalid_request


def test_several_resources(client, short):
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms", "log.retention.ms"]}
        for kind, name in ((TOPIC, short), (TOPIC, unique("missing")), (BROKER, "0"))
    ]
    results = client.ask(Api.DESCRIBE_CONFIGS, 4, resources=resources).results
    assert sorted(result.error_code for result in results) == [0, 0, ErrorCode.unknown_topic_or_partition]
