"""ExampleGens for databases: what they are asked for is a query or a table, not files.

Each has the output `examples`: an Examples artifact, with manifest.json beside the splits.
"""

from typing import Any

from tfx.components.example_gen import component, driver, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.executor import Executor, Request, check_arguments, pack
from infeed.components.example_gen.formats import fingerprint_of
from infeed.components.example_gen.sources.bigquery import BigQueryOptions
from infeed.components.example_gen.sources.sql.reader import SqlOptions


class Driver(driver.QueryBasedDriver):
    """Asks the database what has changed, so that a cached result is not taken for ever."""

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        resolved: dict[str, Any] = super().resolve_exec_properties(exec_properties, pipeline_info, component_info)
        request = Request.of(resolved)
        found = fingerprint_of(request.format, request.patterns, request.source)
        resolved[utils.FINGERPRINT_PROPERTY_NAME] = found
        return resolved


class SqlExampleGen(component.QueryBasedExampleGen):
    """Rows of any database with a SQLAlchemy or ADBC driver -> sharded tf.Examples.

    The connection string is read from the environment, by the driver and by each worker, and stands nowhere else. A
    null is a missing feature; every other value survives.

    A second run takes the first one's result as long as the query, the number of rows and the smallest and largest key
    of `partition_column` are the same; rows changed in place go unnoticed, so change the query's text then, by a
    comment. Kubeflow Pipelines does not ask the database and goes by the query's text alone.

    Args:
      connection_env: name of the environment variable that holds the database's URL: `postgresql+psycopg://...`, by
        SQLAlchemy, or `postgresql+adbc://...`, by ADBC, which is faster.
      query: what to read, or
      table: its name, `schema.table` where it is in another schema, or
      input_config: several of either, each a split of its own.
      partition_column, partitions: as in SqlOptions. The rows of each range are counted before and after, and a table
        that changes meanwhile is an error.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: a static range, for queries with TFX's span macros.
      options: shards, compression, shuffle.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        connection_env: str,
        query: str | None = None,
        table: str | None = None,
        input_config: Any = None,
        partition_column: str | None = None,
        partitions: int = 8,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        source = SqlOptions(connection_env, partition_column, partitions)
        super().__init__(
            input_config=_input_config(query, table, input_config),
            output_config=output_config,
            range_config=range_config,
            custom_config=pack("sql", options or IngestOptions(), source),
        )


class BigQueryExampleGen(component.QueryBasedExampleGen):
    """BigQuery's tables, or the results of queries -> sharded tf.Examples, by the Storage Read API.

    All workers see the table as it was when the reading began. Credentials are the machine's own. A second run takes
    the first one's result as long as the query and the tables that it reads are unchanged; a query that depends on the
    time of day needs another text. Kubeflow Pipelines goes by the query's text alone.

    Args:
      query: what to read, or
      input_config: several queries or tables, each a split of its own, or
      table: the name of one, `project.dataset.table`.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: a static range, for queries with TFX's span macros.
      custom_executor_spec: a BeamExecutorSpec of a subclass of Executor.
      custom_config: refused: `options` and `bigquery` take its place.
      bigquery: who pays, which columns and rows to read, how many streams.
      options: shards, compression, shuffle.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        query: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        custom_config: Any = None,
        *,
        table: str | None = None,
        bigquery: BigQueryOptions | None = None,
        options: IngestOptions | None = None,
    ) -> None:
        runs = custom_executor_spec or self.EXECUTOR_SPEC
        check_arguments(type(self).__name__, runs, custom_config, format="bigquery")
        super().__init__(
            input_config=_input_config(query, table, input_config),
            output_config=output_config,
            range_config=range_config,
            custom_executor_spec=custom_executor_spec,
            custom_config=pack("bigquery", options or IngestOptions(), bigquery or BigQueryOptions()),
        )


def _input_config(query: str | None, table: str | None, input_config: Any) -> Any:
    given = [one for one in (query, table, input_config) if one is not None]
    if len(given) != 1:
        raise InfeedError(
            f"{len(given)} of query, table and input_config", where="what to read", do="give exactly one of them"
        )
    if input_config is not None:
        return input_config
    return example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="single_split", pattern=given[0])])
