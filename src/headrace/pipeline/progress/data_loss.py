"""What the log has lost under a version, in words for who keeps views: a clear failure, never a silent hole."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.client.errors import HeadraceError
from headrace.pipeline.serving.catalog_tables import Progress

_LOST = re.compile(r"DataLost: (.+); set failOnDataLoss to false")


class DataLost(HeadraceError):
    """The log does not have any more what the query has to read."""


def lost_data(error: BaseException, advice: str) -> DataLost | None:
    """What a source has said, as it is or within one of Spark's errors, with other advice: views have no such option.

    Nothing if it has not spoken of that, or if the error says it in our words already.
    """
    found = _LOST.search(f"DataLost: {error}" if isinstance(error, DataLost) else str(error))
    return None if found is None else DataLost(f"{found[1]}; {advice}")


def begin_anew(view: str) -> str:
    return f"to begin anew with what there is: 'headrace views drop {view}' and 'headrace views apply'"


def check_same_topics(progress: Progress, topic_ids: Mapping[str, str], who: str) -> None:
    """
    :raises DataLost: if a topic that was read is gone, or is another one of the same name.
    """
    for topic in progress.offsets:
        if topic not in topic_ids:
            raise DataLost(f"the topic {topic!r} is gone, but {who} has read of it; {begin_anew(progress.view)}")
        if progress.topic_ids.get(topic, topic_ids[topic]) != topic_ids[topic]:
            raise DataLost(
                f"the topic {topic!r} was deleted and made anew since {who} last read it: what it counted is there no "
                f"more, and what is there it has not counted; {begin_anew(progress.view)}"
            )
