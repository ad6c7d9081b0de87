"""Stores what each version costs, as the runner measures it: table ``headrace_costs``. ``views status`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.catalog_tables.versions import COSTS, VersionKey
from headrace.pipeline.serving.database import Database


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a version in the last minutes.

    :param busy: the part of the time in which a micro-batch was in progress, from 0 to 1.
    :param micro_batch_ms: the mean time of a micro-batch, from its start to its commit.
    :param records_per_s: the records read per second.
    :param cpu_cores: the CPU time per second that micro-batches take in the driver, in Python and Java; None for a
        Spark stream, whose jobs are not counted.
    """

    busy: float
    micro_batch_ms: float
    records_per_s: float
    cpu_cores: float | None = None


class VersionCosts:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[VersionKey, Cost]:
        with self._database.read() as connection:
            rows = list(connection.execute(COSTS.select()))
        return {
            (row.view, row.version): Cost(row.busy, row.micro_batch_ms, row.records_per_s, row.cpu_cores)
            for row in rows
        }

    def write(self, costs: Mapping[VersionKey, Cost]) -> None:
        """Replaces the rows of these versions, in one transaction."""
        with self._database.begin() as connection:
            for (view, version), cost in costs.items():
                update_or_insert(connection, COSTS, {"view": view, "version": version}, asdict(cost))
