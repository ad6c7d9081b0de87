"""Reads and rebuilds Spark's query plans (Catalyst) from Python.

A DataFrame is a tree of Catalyst nodes in the JVM; py4j returns them as objects. Nodes and expressions are immutable: a
change is a new node over the old children. Columns are identified by expression ids, not by names. So a node can be
replaced by another one with the same ids, and the nodes above it need no change. In this way a query that was analyzed
once runs over other data (``replace_leaf``): that takes a few milliseconds, and the analysis of SQL takes tens.

None of this is a public interface of Spark, but it has been stable since Spark 4.0. Only this module and the package
``query`` refer to classes of Catalyst by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

#: An object in the JVM. py4j has no types for them.
JavaObject: TypeAlias = Any


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


class Catalyst:
    """Operations on plans that need the JVM of the session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: JavaObject = spark._jvm
        self._session: JavaObject = spark._jsparkSession

    def analyzed(self, frame: DataFrame) -> JavaObject:
        """The analyzed plan of a frame, with its common table expressions inlined."""
        plan = frame._jdf.queryExecution().analyzed()
        return self._inline_rule().apply(plan) if self.contains(plan, "CTE") else plan

    def contains(self, node: JavaObject, pattern: str) -> bool:
        """Whether a plan or expression contains one of Spark's ``TreePattern``. One call instead of one per node."""
        return bool(node.containsPattern(getattr(self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()))

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

        rows = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session, plan)
        return DataFrame(rows, self.spark)

    def column(self, expression: JavaObject) -> Column:
        from pyspark.sql.classic.column import Column

        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

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
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(self.sequence(expressions), child)

    def alias(self, expression: JavaObject, like: JavaObject) -> JavaObject:
        """The expression with the name and id of an attribute, so that it can replace the attribute."""
        nothing = self.sequence([])
        metadata = getattr(self._jvm.scala, "None$")
        none = getattr(metadata, "MODULE$")
        build = self._jvm.org.apache.spark.sql.catalyst.expressions.Alias
        return build(expression, like.name(), like.exprId(), nothing, none, nothing)

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
