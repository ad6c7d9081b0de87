"""The raw client's own errors."""

import pytest

from headrace.protocol.api import Api
from headrace.testing.raw_client import encode_request


def test_a_missing_field_is_named():
    with pytest.raises(
        TypeError, match="METADATA v12 needs the field 'include_topic_authorized_operations'; given: topics"
    ):
        encode_request(Api.METADATA, 12, 1, None, topics=None)
