"""ExampleGens of databases and functions, which read queries, tables, or results instead of files.

Each has the output `examples`, an Examples artifact with manifest.json beside the splits.
"""

from collections.abc import Mapping
from typing import Any

from tfx.components.example_gen import component, driver, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.executor import Executor, Request, check_arguments, pack
from infeed.components.example_gen.formats import fingerprint_of, options_of
from infeed.components.example_gen.sources.bigquery import BigQueryOptions
from infeed.components.example_gen.sources.reader import ReaderOptions
from infeed.components.example_gen.sources.sql_reader import SqlOptions


class Driver(driver.QueryBasedDriver):
    """Query the database for its fingerprint, so that the cache is invalidated when the data changes."""

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        resolved: dict[str, Any] = super().resolve_exec_properties(exec_properties, pipeline_info, component_info)
        request = Request.of(resolved)
        resolved[utils.FINGERPRINT_PROPERTY_NAME] = fingerprint_of(request.format, request.patterns, request.source)
        return resolved


class SqlExampleGen(component.QueryBasedExampleGen):
    """Convert rows of a database with a SQLAlchemy or ADBC driver to sharded tf.Examples.

    The driver and each worker read the connection string from the environment. The connection string is stored nowhere
    else. A null becomes a missing feature; every other value is preserved.

    The cache key holds the query, the number of rows, and the smallest and largest value of `partition_column`. Rows
    changed in place go unnoticed. To read them again, change the text of the query, for example with a comment.
    Kubeflow Pipelines caches by the text of the query alone.

    Args:
      connection_env: environment variable that holds the database's URL. `postgresql+psycopg://...` uses SQLAlchemy,
        and `postgresql+adbc://...` uses ADBC, which is faster.
      query: query to read. Give exactly one of `query`, `table`, and `input_config`.
      table: table to read, `schema.table` if it is in another schema.
      input_config: several queries or tables, one for each split.
      partition_column, partitions: see SqlOptions. The reader counts the rows of each range before and after reading,
        and raises an error if the table changed meanwhile.
      output_config: hash buckets. Defaults to train 2, eval 1 if the input is one split.
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
    """Convert BigQuery tables or query results to sharded tf.Examples, by the Storage Read API.

    All workers read the same snapshot of the table. Credentials are those of the machine. The cache key holds the query
    and the state of the tables that it reads. Change the text of a query that depends on the time of day. Kubeflow
    Pipelines caches by the text of the query alone.

    Args:
      query: query to read. Give exactly one of `query`, `table`, and `input_config`.
      input_config: several queries or tables, one for each split.
      table: table to read, `project.dataset.table`.
      output_config: hash buckets. Defaults to train 2, eval 1 if the input is one split.
      range_config: a static range, for queries with TFX's span macros.
      custom_executor_spec: BeamExecutorSpec of a subclass of Executor.
      custom_config: not supported. Use `options` and `bigquery`.
      bigquery: billing project, columns, row filter, number of streams.
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


class ReaderExampleGen(component.QueryBasedExampleGen):
    """ArrowExampleGen of a function. Kubeflow Pipelines caches by the code of the function alone.

    For the arguments, see ArrowExampleGen.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        reader: str,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        source: ReaderOptions | Mapping[str, Any] | None = None,
    ) -> None:
        own = source if isinstance(source, ReaderOptions) else options_of("reader", source or {})
        config = pack("reader", options or IngestOptions(), own, user_code.digest(reader, "reader"))
        super().__init__(_input_config(reader, None, None), output_config, config, range_config)
        self.with_id("ArrowExampleGen")


def _input_config(query: str | None, table: str | None, input_config: Any) -> Any:
    given = [one for one in (query, table, input_config) if one is not None]
    if len(given) != 1:
        what = f"{len(given)} of query, table and input_config are given"
        raise InfeedError(what, where="query", do="give exactly one of them")
    if input_config is not None:
        return input_config
    return example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="single_split", pattern=given[0])])
