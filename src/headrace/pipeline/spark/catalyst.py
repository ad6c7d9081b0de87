"""Reads and rebuilds Spark's query plans (Catalyst) from Python.

A DataFrame is a tree of Catalyst nodes in the JVM; py4j returns them as objects. Nodes and expressions are immutable: a
change is a new node over the old children. Columns are identified by expression ids, not by names. So a node can be
replaced by another one with the same ids, and the nodes above it need no change. In this way a query that was analyzed
once runs over other data (``replace_leaf``): that takes a few milliseconds, and the analysis of SQL takes tens.

None of this is a public interface of Spark, but it has been stable since Spark 4.0. Only this module and the packages
``query`` and ``touched`` refer to classes of Catalyst by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

#: An object in the JVM. py4j has no types for them.
JavaObject: TypeAlias = Any
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"


def kind(node: JavaObject) -> str:
    """``Project``, ``Aggregate``, ``Count``, ..."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(index) for index in range(sequence.size())]


def children(node: JavaObject) -> list[JavaObject]:
    return items(node.children())


def expression_id(attribute: JavaObject) -> int:
    return int(attribute.exprId().id())


def walk(node: JavaObject) -> list[JavaObject]:
    """A node and all nodes below it; an expression and all its parts."""
    found = [node]
    for child in children(node):
        found += walk(child)
    return found


def chain(plan: JavaObject) -> tuple[JavaObject, ...]:
    """The nodes of a plan in which each has one child, the topmost first."""
    nodes = [plan]
    while below := children(nodes[-1]):
        (child,) = below
        nodes.append(child)
    return tuple(nodes)


def streaming_leaves(plan: JavaObject) -> list[JavaObject]:
    """The leaves of a plan that read a stream. Spark creates one source for each of them."""
    return [node for node in walk(plan) if not children(node) and node.isStreaming()]


def data_type(expression: JavaObject) -> DataType:
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(str(expression.dataType().json()))


def _is_orderable(type_: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(type_, types.ArrayType):
        return _is_orderable(type_.elementType)
    if isinstance(type_, types.StructType):
        return all(_is_orderable(field.dataType) for field in type_)
    return not isinstance(type_, types.MapType | types.VariantType | types.CalendarIntervalType)


class EqualKeys(NamedTuple):
    """The expressions of both sides of a join that have to be equal, in pairs.

    :ivar has_more: whether the join has further conditions.
    """

    left: list[JavaObject]
    right: list[JavaObject]
    has_more: bool


class Catalyst:
    """Operations on plans that need the JVM of the session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: JavaObject = spark._jvm
        self._session: JavaObject = spark._jsparkSession
        self._rules: dict[str, JavaObject] = {}
        self._classes: dict[str, JavaObject] = {}

    def _class(self, name: str) -> JavaObject:
        """A class by its name. py4j asks the JVM once per part of a name, so classes are remembered."""
        if name not in self._classes:
            found: JavaObject = self._jvm
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found
        return self._classes[name]

    @property
    def _none(self) -> JavaObject:
        return self.rule("scala.None")

    def analyzed(self, frame: DataFrame) -> JavaObject:
        """The analyzed plan of a frame, with its common table expressions inlined, and without marks of ``|>``."""
        plan = frame._jdf.queryExecution().analyzed()
        if self.contains(plan, "PIPE_OPERATOR"):
            plan = self.rule("org.apache.spark.sql.catalyst.expressions.EliminatePipeOperators").apply(plan)
        return self._inline_rule().apply(plan) if self.contains(plan, "CTE") else plan

    def contains(self, node: JavaObject, pattern: str) -> bool:
        """Whether a plan or expression contains one of Spark's ``TreePattern``. One call instead of one per node."""
        return bool(node.containsPattern(getattr(self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()))

    def is_aggregate_function(self, expression: JavaObject) -> bool:
        name = "org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction"
        return bool(self._jvm.java.lang.Class.forName(name).isInstance(expression))

    def equal_keys(self, join: JavaObject) -> EqualKeys:
        """Returns the pairs of expressions that the condition of a join compares by equality."""
        extract = getattr(self._jvm.org.apache.spark.sql.catalyst.planning, "ExtractEquiJoinKeys$")
        found = getattr(extract, "MODULE$").unapply(join)
        if not found.isDefined():
            return EqualKeys([], [], has_more=bool(join.condition().isDefined()))
        parts = found.get()
        return EqualKeys(items(parts._2()), items(parts._3()), has_more=bool(parts._4().isDefined()))

    def _inline_rule(self) -> JavaObject:
        """Spark's InlineCTE(alwaysInline=True, ...).

        The number of further parameters differs between versions of Spark.
        """
        name = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
        constructor = self._jvm.java.lang.Class.forName(name).getConstructors()[0]
        others = [False] * (constructor.getParameterCount() - 1)
        return self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, *others)

    def frame(self, plan: JavaObject) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        rows = self._class("org.apache.spark.sql.classic.Dataset").ofRows(self._session, plan)
        return DataFrame(rows, self.spark)

    def cached(self, frame: DataFrame) -> DataFrame:
        """The rows that Spark keeps of a frame (``persist``), without the plan that has computed them.

        Spark analyzes and optimizes the whole plan of a frame for every job, also the part that it then takes from the
        cache. That takes longer than a small job.
        """
        return self.frame(frame._jdf.queryExecution().withCachedData())

    def column(self, expression: JavaObject) -> Column:
        from pyspark.sql.classic.column import Column

        return Column(self._class("org.apache.spark.sql.classic.ExpressionUtils").column(expression))

    def select(self, plan: JavaObject, columns: Sequence[Column]) -> JavaObject:
        """An analyzed projection. Only the analysis turns a Column into an expression."""
        return self.frame(plan).select(*columns)._jdf.queryExecution().analyzed()

    def struct(self, fields: Sequence[tuple[str, JavaObject]]) -> JavaObject:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        literal = getattr(getattr(expressions, "Literal$"), "MODULE$")
        parts = [part for name, value in fields for part in (literal.apply(name), value)]
        return expressions.CreateNamedStruct(self.sequence(parts))

    def sequence(self, nodes: Sequence[JavaObject]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(list(nodes))

    def with_children(self, node: JavaObject, new: Sequence[JavaObject]) -> JavaObject:
        return node.withNewChildren(self.sequence(new))

    def project(self, expressions: Sequence[JavaObject], child: JavaObject) -> JavaObject:
        return self._class(f"{_LOGICAL}.Project")(self.sequence(expressions), child)

    def alias(self, expression: JavaObject, like: JavaObject) -> JavaObject:
        """The expression with the name and id of an attribute, so that it can replace the attribute."""
        nothing, build = self.sequence([]), self._class("org.apache.spark.sql.catalyst.expressions.Alias")
        return build(expression, like.name(), like.exprId(), nothing, self._none, nothing)

    def null_if(self, condition: JavaObject, expression: JavaObject) -> JavaObject:
        """The expression; NULL, and not computed, where the condition holds."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.If(condition, expressions.Literal(None, expression.dataType()), expression)

    def only_if(self, condition: JavaObject, expression: JavaObject) -> JavaObject:
        """The expression where the condition holds; elsewhere NULL, and not computed."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.If(condition, expression, expressions.Literal(None, expression.dataType()))

    def hyper_log_log(self, function: JavaObject) -> JavaObject:
        """Spark's helper that computes the estimates of approx_count_distinct."""
        helpers = self._jvm.org.apache.spark.sql.catalyst.util
        return helpers.HyperLogLogPlusPlusHelper(function.relativeSD())

    def without_watermark(self, plan: JavaObject) -> JavaObject:
        """The plan without watermarks, for a batch."""
        rule = getattr(self._jvm.org.apache.spark.sql.catalyst.analysis, "EliminateEventTimeWatermark$")
        return getattr(rule, "MODULE$").apply(plan)

    def check_stream(self, frame: DataFrame, output_mode: str) -> None:
        """Raises Spark's error if a query cannot run as a stream in that output mode."""
        modes = self._jvm.org.apache.spark.sql.streaming.OutputMode
        mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode]()
        checker = self._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)

    def rewrite(self, expression: JavaObject, replace: Callable[[JavaObject], JavaObject | None]) -> JavaObject:
        """The expression with parts replaced, outermost first. A part stays if ``replace`` returns None."""
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        old = children(expression)
        new = [self.rewrite(child, replace) for child in old]
        unchanged = all(before is after for before, after in zip(old, new, strict=True))
        return expression if unchanged else self.with_children(expression, new)

    # ------------------------------------------------------------------------------------------- building operators

    def module(self, name: str) -> JavaObject:
        """The Scala object of this name."""
        return self._jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)

    def rule(self, name: str) -> JavaObject:
        """A rule of the analyzer or optimizer, or another Scala object, which is remembered."""
        if name not in self._rules:
            self._rules[name] = self.module(name)
        return self._rules[name]

    def with_expressions(
        self, node: JavaObject, replaced: Sequence[tuple[JavaObject, JavaObject]], child: JavaObject
    ) -> JavaObject:
        """The node over another child, with whole expressions replaced: pairs of old and new."""

        def of(argument: JavaObject) -> JavaObject:
            return next((new for old, new in replaced if argument.equals(old)), argument)

        arguments = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(node.productIterator())
        changed = []
        sequences = self._jvm.java.lang.Class.forName("scala.collection.immutable.Seq")
        plans = self._jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.logical.LogicalPlan")
        while arguments.hasNext():
            argument = arguments.next()
            if plans.isInstance(argument):
                changed.append(child)
            elif sequences.isInstance(argument):
                changed.append(self.sequence([of(each) for each in items(argument)]))
            else:
                changed.append(of(argument))
        return node.makeCopy(self._array(changed))

    def _array(self, values: Sequence[JavaObject]) -> JavaObject:
        gateway: JavaObject = self.spark.sparkContext._gateway
        made = gateway.new_array(self._jvm.java.lang.Object, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    def join(self, left: JavaObject, right: JavaObject, join_type: str) -> JavaObject:
        """A join without a condition."""
        hint = self.module("org.apache.spark.sql.catalyst.plans.logical.JoinHint").NONE()
        type_ = self.module(f"org.apache.spark.sql.catalyst.plans.{join_type}")
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Join(left, right, type_, self._none, hint)

    def join_like(self, node: JavaObject, left: JavaObject, right: JavaObject, condition: JavaObject) -> JavaObject:
        """A join of the same type with other sides and another condition."""
        build, some = self._class(f"{_LOGICAL}.Join"), self._jvm.scala.Some(condition)
        return build(left, right, node.joinType(), some, node.hint())

    def empty_relation(self, columns: Sequence[JavaObject]) -> JavaObject:
        """A relation with these columns and no rows. The optimizer removes what is above it."""
        return self.local_relation(self.sequence(columns), self.sequence([]))

    def local_relation(self, columns: JavaObject, data: JavaObject) -> JavaObject:
        """A relation with the rows of another LocalRelation.

        :param columns: a sequence of attributes.
        :param data: ``data()`` of a LocalRelation whose columns have the same types.
        """
        return self._class(f"{_LOGICAL}.LocalRelation")(columns, data, False, self._none)

    def in_one_partition(self, plan: JavaObject) -> JavaObject:
        return self._class(f"{_LOGICAL}.Repartition")(1, False, plan)

    def ascending(self, expression: JavaObject) -> JavaObject:
        expressions = "org.apache.spark.sql.catalyst.expressions"
        build = self._jvm.org.apache.spark.sql.catalyst.expressions.SortOrder
        directions = (self.module(f"{expressions}.Ascending"), self.module(f"{expressions}.NullsFirst"))
        return build(expression, *directions, self.sequence([]))

    def is_orderable(self, expression: JavaObject) -> bool:
        """As RowOrdering.isOrderable, whose overload for sequences py4j takes for a struct."""
        return _is_orderable(data_type(expression))

    def as_text(self, expression: JavaObject) -> JavaObject:
        """The expression cast to a text. The frame that it becomes part of is analyzed."""
        from pyspark.sql import functions as F  # noqa: N812

        made = self.column(expression)
        as_json = F.to_json(made) if str(expression.dataType().typeName()) == "variant" else made.cast("string")
        converter = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        return converter.expression(as_json._jc)

    def sort(self, orders: Sequence[JavaObject], plan: JavaObject, *, is_global: bool) -> JavaObject:
        """The rows of a plan in an order: of all rows, or of the rows of each partition."""
        return self._class(f"{_LOGICAL}.Sort")(self.sequence(orders), is_global, plan, self._none)

    def replace_leaf(self, chain: Sequence[JavaObject], frame: DataFrame) -> JavaObject:
        """The same operators over another frame. Its columns are matched by name.

        :param chain: nodes with one child each, the topmost first. The last one has no children.
        """
        leaf = chain[-1]
        plan = frame._jdf.queryExecution().analyzed()
        offered = {str(attribute.name()): attribute for attribute in items(plan.output())}
        wanted = items(leaf.output())
        missing = [str(each.name()) for each in wanted if str(each.name()) not in offered]
        if missing:
            raise ValueError(f"the frame has no column {missing[0]!r}, only {', '.join(offered)}")
        built = self.project([self.alias(offered[str(each.name())], each) for each in wanted], plan)
        for node in reversed(chain[:-1]):
            built = self.with_children(node, [built])
        return built
