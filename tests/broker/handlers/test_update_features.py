"""UpdateFeatures: the features of the cluster cannot change."""

import pytest
from broker_harness import all_versions

from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode


def update(client, feature, level, version=1):
    change = {"feature": feature, "max_version_level": level, "upgrade_type": 1, "allow_downgrade": False}
    return client.ask(Api.UPDATE_FEATURES, version, timeout=10_000, feature_updates=[change], validate_only=False)


@pytest.mark.parametrize("version", all_versions(Api.UPDATE_FEATURES))
@pytest.mark.parametrize(
    ("feature", "level"),
    [("", 1), ("no.such.feature", 20), ("group.version", 9), ("transaction.version", 9)],
)
def test_no_feature_can_change(client, version, feature, level):
    answer = update(client, feature, level, version)
    assert answer.error_code == ErrorCode.invalid_update_version
    assert answer.error_message


@pytest.mark.parametrize("version", all_versions(Api.UPDATE_FEATURES))
def test_a_feature_has_its_level_already(client, version):
    answer = update(client, "group.version", 1, version)
    assert answer.error_code == ErrorCode.none
    assert [(each.feature, each.error_code) for each in getattr(answer, "results", ())] == (
        [("group.version", ErrorCode.none)] if version < 2 else []
    )


def test_features_cannot_be_disabled(client, ours):
    for version in (0, 1):
        assert update(client, "group.version", 0, version).error_code == ErrorCode.invalid_update_version


def test_the_versions_are_those_of_kafka():
    assert list(versions_of(Api.UPDATE_FEATURES)) == [0, 1, 2]


def test_the_quorum_that_does_not_exist_is_not_advertised(client, ours):
    """So kafka-metadata-quorum and kafka-python say that the broker does not support DescribeQuorum (key 55)."""
    answer = client.ask(Api.API_VERSIONS, 3, client_software_name="raw", client_software_version="1")
    keys = {key.api_key for key in answer.api_keys}
    assert 57 in keys
    assert 55 not in keys
