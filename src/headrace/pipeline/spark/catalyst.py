"""Spark's own query plans, read and rebuilt from Python: the few steps that ``plan`` needs.

A DataFrame is a tree of Catalyst nodes in the JVM; py4j hands them out as objects. Nodes and expressions are immutable:
a change is a new node over the old children. Columns are told apart by expression ids, not by names, so a node can be
replaced by another one that gives out the same ids, and whatever is above it does not notice. This is how a query that
was analyzed once is run over other data (``replace_leaf``): analysis of SQL takes tens of milliseconds, this a few.

None of this is a public interface of Spark, though it has been stable since Spark 4.0 split its classic classes off.
Everything that knows a class of Catalyst by name is here and in ``plan``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

#: An object in the JVM: py4j has no types for them.
Java: TypeAlias = Any


def kind(node: Java) -> str:
    """``Project``, ``Aggregate``, ``Count``, ..."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def items(sequence: Java) -> list[Java]:
    return [sequence.apply(index) for index in range(sequence.size())]


def children(node: Java) -> list[Java]:
    return items(node.children())


def expression_id(attribute: Java) -> int:
    return int(attribute.exprId().id())


def walk(node: Java) -> list[Java]:
    """A node and all that is below it; of an expression, its parts."""
    found = [node]
    for child in children(node):
        found += walk(child)
    return found


def chain(plan: Java) -> tuple[Java, ...]:
    """The nodes of a plan in which each has one child, the topmost first."""
    nodes = [plan]
    while below := children(nodes[-1]):
        (child,) = below
        nodes.append(child)
    return tuple(nodes)


def streaming_leaves(plan: Java) -> list[Java]:
    """The places where a plan reads a stream. Spark makes a source of its own for each of them."""
    return [node for node in walk(plan) if not children(node) and node.isStreaming()]


def data_type(expression: Java) -> DataType:
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(str(expression.dataType().json()))


class Catalyst:
    """What needs the session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Java = spark._jvm
        self._session: Java = spark._jsparkSession

    def analyzed(self, frame: DataFrame) -> Java:
        """The plan of a frame with its common table expressions put in where they are used."""
        plan = frame._jdf.queryExecution().analyzed()
        return self._inline_rule().apply(plan) if self.contains(plan, "CTE") else plan

    def contains(self, node: Java, pattern: str) -> bool:
        """Whether something of Spark's ``TreePattern`` is in a plan or expression. One call, where a walk is many."""
        return bool(node.containsPattern(getattr(self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()))

    def _inline_rule(self) -> Java:
        """Spark's InlineCTE(alwaysInline=True, ...): how many more settings it has differs by version."""
        name = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
        constructor = self._jvm.java.lang.Class.forName(name).getConstructors()[0]
        others = [False] * (constructor.getParameterCount() - 1)
        return self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, *others)

    def frame(self, plan: Java) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        rows = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session, plan)
        return DataFrame(rows, self.spark)

    def column(self, expression: Java) -> Column:
        from pyspark.sql.classic.column import Column

        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def select(self, plan: Java, columns: Sequence[Column]) -> Java:
        """A projection, analyzed: the way from a Column to expressions, which are not known before that."""
        return self.frame(plan).select(*columns)._jdf.queryExecution().analyzed()

    def struct(self, fields: Sequence[tuple[str, Java]]) -> Java:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        literal = getattr(getattr(expressions, "Literal$"), "MODULE$")
        parts = [part for name, value in fields for part in (literal.apply(name), value)]
        return expressions.CreateNamedStruct(self.sequence(parts))

    def sequence(self, nodes: Sequence[Java]) -> Java:
        return self._jvm.PythonUtils.toSeq(list(nodes))

    def with_children(self, node: Java, new: Sequence[Java]) -> Java:
        return node.withNewChildren(self.sequence(new))

    def project(self, expressions: Sequence[Java], child: Java) -> Java:
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(self.sequence(expressions), child)

    def alias(self, expression: Java, like: Java) -> Java:
        """The expression under the name and id of an attribute, so that it takes its place."""
        nothing = self.sequence([])
        metadata = getattr(self._jvm.scala, "None$")
        none = getattr(metadata, "MODULE$")
        build = self._jvm.org.apache.spark.sql.catalyst.expressions.Alias
        return build(expression, like.name(), like.exprId(), nothing, none, nothing)

    def null_if(self, condition: Java, expression: Java) -> Java:
        """The expression, not computed and NULL where the condition holds."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.If(condition, expressions.Literal(None, expression.dataType()), expression)

    def only_if(self, condition: Java, expression: Java) -> Java:
        """The expression where the condition holds; not computed and NULL where it does not."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.If(condition, expression, expressions.Literal(None, expression.dataType()))

    def hyper_log_log(self, function: Java) -> Java:
        """What computes the estimates of an approx_count_distinct."""
        helpers = self._jvm.org.apache.spark.sql.catalyst.util
        return helpers.HyperLogLogPlusPlusHelper(function.relativeSD())

    def without_watermark(self, plan: Java) -> Java:
        """As a batch has it: watermarks are for streams only."""
        rule = getattr(self._jvm.org.apache.spark.sql.catalyst.analysis, "EliminateEventTimeWatermark$")
        return getattr(rule, "MODULE$").apply(plan)

    def check_stream(self, frame: DataFrame, output_mode: str) -> None:
        """Raises Spark's error if a query cannot run as a stream in that output mode."""
        modes = self._jvm.org.apache.spark.sql.streaming.OutputMode
        mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode]()
        checker = self._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)

    def rewrite(self, expression: Java, replace: Callable[[Java], Java | None]) -> Java:
        """The expression with parts replaced, outermost first; what ``replace`` has nothing for stays."""
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        old = children(expression)
        new = [self.rewrite(child, replace) for child in old]
        unchanged = all(before is after for before, after in zip(old, new, strict=True))
        return expression if unchanged else self.with_children(expression, new)

    def replace_leaf(self, chain: Sequence[Java], frame: DataFrame) -> Java:
        """The same operators over another frame, whose columns are found by name.

        :param chain: nodes with one child each, the topmost first, the last one without children.
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
