"""The tables of a version of a Lambda view, their rows, and the SELECT through which readers see them as one table.

::

    <view>__v<N>_b<M>    batch M        _key | output columns, _order_n, _hidden | key and partial columns
    <view>__v<N>_over    the overlay    the same columns; the rows that the speed layer has changed since the batch,
                                        with batch and spans combined
    <view>__v<N>_speed   spans          span, _key | key and partial columns over the records of one span

A reader gets the overlay, and the rows of the batch whose keys are not in the overlay. A row that the query's HAVING
leaves out has ``_hidden`` set. The partial columns of a batch are needed for the next batch and for the overlay. The
speed table is never read by key: the overlay is computed again from it when a batch is committed.

Rows are grouped by ``_key``, both in Arrow and in the database. So texts that a database cannot store are changed
before keys are made from them: a stored text must give the same key when it is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from sqlalchemy import Connection, Table

from headrace.pipeline.query.plan import HIDDEN, SortBy
from headrace.pipeline.serving.columns import plain_strings
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.sql_views import drop_table
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.tables import data_table

if TYPE_CHECKING:
    from headrace.pipeline.query.aggregates import Algebra

SPAN = "span"


def speed_name(view: str, version: int) -> str:
    return f"{view}__v{version}_speed"


def overlay_name(view: str, version: int) -> str:
    return f"{view}__v{version}_over"


def batch_name(view: str, version: int, batch: int) -> str:
    return f"{view}__v{version}_b{batch}"


def drop_tables(connection: Connection, view: str, version: int, batches: list[int]) -> None:
    """Drops all tables of a version.

    :param batches: the batches in the catalog. The next one may have been loaded and not committed; it is dropped too.
    """
    for batch in (*batches, max(batches, default=0) + 1):
        drop_table(connection, batch_name(view, version, batch))
    drop_table(connection, overlay_name(view, version))
    drop_table(connection, speed_name(view, version))


@dataclass(frozen=True, eq=False)
class LambdaTables:
    """The tables of one version.

    :param overlay_table: another name of the overlay. A Kappa view has an overlay only.
    """

    view: str
    version: int
    algebra: Algebra
    is_sqlite: bool
    overlay_table: str = ""
    #: The same Table objects each time: with them SQLAlchemy finds its compiled statements again.
    _known: dict[tuple[str, pa.Schema], Table] = field(default_factory=dict, repr=False)

    # ------------------------------------------------------------------------------------------------------- tables

    @cached_property
    def speed(self) -> Table:
        schema = pa.schema([pa.field(SPAN, pa.int64()), *self._stored_schema])
        name = speed_name(self.view, self.version)
        return self._table(name, schema, primary_key=(SPAN, "_key"))

    @cached_property
    def overlay(self) -> Table:
        return self._table(self.overlay_table or overlay_name(self.view, self.version), self.schema)

    def batch(self, batch: int) -> Table:
        return self._table(batch_name(self.view, self.version, batch), self.schema)

    def partials(self, table: Table) -> Table:
        """The same table with only the key and partial columns."""
        return self._table(table.name, self._stored_schema)

    @cached_property
    def _stored_schema(self) -> pa.Schema:
        return self.algebra.stored_schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a batch and of the overlay."""
        return pa.schema([*self.algebra.final_schema, *self._stored_schema])

    def _table(self, name: str, schema: pa.Schema, primary_key: tuple[str, ...] = ("_key",)) -> Table:
        found = self._known.get((name, schema))
        if found is None:
            keys, exact = self.algebra.key_columns, self.algebra.exact_columns
            found = data_table(name, schema, keys, primary_key=primary_key, exact_columns=exact)
            self._known[name, schema] = found
        return found

    def forget(self, batch: int) -> None:
        """Removes a batch that was dropped from the cache."""
        name = batch_name(self.view, self.version, batch)
        for each in [key for key in self._known if key[0] == name]:
            del self._known[each]

    # --------------------------------------------------------------------------------------------------------- rows

    def fit(self, partials: pa.Table) -> pa.Table:
        """Partial rows, one per key, with keys that the database returns unchanged."""
        for name in self.algebra.key_columns:
            at = partials.schema.get_field_index(name)
            if pa.types.is_string(partials.schema.field(at).type):
                texts = plain_strings(partials.column(at))
                if not self.is_sqlite:  # as ``columns.stored`` does
                    texts = pc.replace_substring(texts, "\x00", "\ufffd")
                partials = partials.set_column(at, name, texts)
        keys = self.keys(partials)
        is_fit = self.algebra.key_columns and pc.count_distinct(keys).as_py() == len(keys)
        return partials if is_fit else self.algebra.merge([partials])

    def keys(self, partials: pa.Table) -> pa.StringArray:
        return canonical_keys(partials, self.algebra.key_columns)

    def shown(self, merged: pa.Table) -> pa.Table:
        """Partial rows as rows of a batch or of the overlay."""
        final, stored = self.algebra.final(merged), self.algebra.stored(merged)
        rows = pa.table([*final.columns, *stored.columns], schema=self.schema)
        return rows.append_column("_key", self.keys(merged))

    @property
    def no_rows(self) -> pa.Table:
        return self.schema.append(pa.field("_key", pa.string())).empty_table()

    def of_span(self, merged: pa.Table, span: int) -> pa.Table:
        """Partial rows as rows of the speed table."""
        stored = self.algebra.stored(merged).append_column("_key", self.keys(merged))
        return stored.append_column(SPAN, pa.repeat(pa.scalar(span, pa.int64()), len(stored)))

    # -------------------------------------------------------------------------------------------------- the SQL view

    def select_sql(self, batch: int | None) -> str:
        """The SELECT of the SQL view.

        :param batch: None before the first batch.
        """
        plan = self.algebra.plan
        output = ", ".join(map(quoted, plan.output))
        if not plan.order and plan.limit is None:
            return self._everything(output, batch)
        more = [quoted(each.column) for each in plan.order if each.column not in plan.output]
        everything = self._everything(", ".join([output, *more, '"_key"']), batch)
        # Keys break ties, so that the order does not depend on which table a row is in.
        order = ", ".join([*map(self._term, plan.order), '"_key"'])
        limit = "" if plan.limit is None else f" LIMIT {plan.limit}"
        return f"SELECT {output} FROM ({everything}) AS everything ORDER BY {order}{limit}"

    def _everything(self, columns: str, batch: int | None) -> str:
        hidden, over = quoted(HIDDEN), quoted(self.overlay.name)
        overlay = f"SELECT {columns} FROM {over} WHERE NOT {hidden}"
        if batch is None:
            return overlay
        rest = quoted(batch_name(self.view, self.version, batch))
        is_older = f'NOT EXISTS (SELECT 1 FROM {over} AS newer WHERE newer."_key" = {rest}."_key")'
        return f"{overlay} UNION ALL SELECT {columns} FROM {rest} WHERE NOT {hidden} AND {is_older}"

    def _term(self, order: SortBy) -> str:
        """A term of ORDER BY, for both databases. Texts are sorted by their bytes, as in Spark."""
        kind = self.algebra.final_schema.field(order.column).type
        collation = "" if self.is_sqlite or not pa.types.is_string(kind) else ' COLLATE "C"'
        direction = "DESC" if order.descending else "ASC"
        nulls = "FIRST" if order.nulls_first else "LAST"
        return f"{quoted(order.column)}{collation} {direction} NULLS {nulls}"
