"""Data that the log no longer has although a view needs it. A view fails with ``DataLost``; it never skips records."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.client.errors import HeadraceError
from headrace.pipeline.serving.catalog_tables.versions import Progress

_LOST = re.compile(r"DataLost: (.+); set failOnDataLoss to false")


class DataLost(HeadraceError):
    """The log no longer has records that a query has to read."""


def find_data_loss(error: BaseException, advice: str) -> DataLost | None:
    """Returns the data loss that a source reported, with advice for views: views have no option failOnDataLoss.

    The loss is the error itself, or its text inside of one of Spark's errors. None if the error reports no loss, or if
    it already has the advice.
    """
    found = _LOST.search(f"DataLost: {error}" if isinstance(error, DataLost) else str(error))
    return None if found is None else DataLost(f"{found[1]}; {advice}")


def start_over_advice(view: str) -> str:
    return f"to start over with what the log has now, run 'headrace views drop {view}' and 'headrace views apply'"


def check_same_topics(progress: Progress, topic_ids: Mapping[str, str], label: str) -> None:
    """Checks that the topics that were read still exist and were not created anew under the same name.

    :param label: the version, for messages.
    :raises DataLost: if a topic is missing or has another id.
    """
    for topic in progress.offsets:
        if topic not in topic_ids:
            advice = start_over_advice(progress.view)
            raise DataLost(f"the topic {topic!r} no longer exists, but {label} has read from it; {advice}")
        if progress.topic_ids.get(topic, topic_ids[topic]) != topic_ids[topic]:
            raise DataLost(
                f"the topic {topic!r} was deleted and created again since {label} last read it: the records that "
                f"{label} has counted are gone, and it has not counted the new ones; {start_over_advice(progress.view)}"
            )
