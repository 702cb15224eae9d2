"""ExampleGens for databases: what they are asked for is a query or a table, not files."""

import abc
from dataclasses import asdict
from typing import Any

from tfx.components.example_gen import component, driver, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import executor, ingest
from infeed.components.example_gen.sources import bigquery, sql
from infeed.components.example_gen.sources.bigquery import BigQueryOptions


class SqlExecutor(executor.Executor):
    """Queries or tables in."""

    def open(self, request: executor.Request) -> ingest.Input:
        return sql.open_sql(request.patterns, request.options, sql.SqlOptions(**request.source))


class BigQueryExecutor(executor.Executor):
    """BigQuery's queries or tables in."""

    def open(self, request: executor.Request) -> ingest.Input:
        return bigquery.open_bigquery(request.patterns, request.options, bigquery.BigQueryOptions(**request.source))


class Driver(driver.QueryBasedDriver, abc.ABC):
    """Asks the database what has changed, so that a cached result is not taken for ever."""

    @abc.abstractmethod
    def fingerprint(self, request: executor.Request) -> str:
        """Of what the queries would read now."""

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        resolved: dict[str, Any] = super().resolve_exec_properties(exec_properties, pipeline_info, component_info)
        resolved[utils.FINGERPRINT_PROPERTY_NAME] = self.fingerprint(executor.Request.of(resolved))
        return resolved


class SqlDriver(Driver):
    """By the number of rows and the range of keys."""

    def fingerprint(self, request: executor.Request) -> str:
        return sql.fingerprint(request.patterns, sql.SqlOptions(**request.source))


class BigQueryDriver(Driver):
    """By the time of the last change of every table that is read."""

    def fingerprint(self, request: executor.Request) -> str:
        return bigquery.fingerprint(request.patterns, bigquery.BigQueryOptions(**request.source))


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
      partition_column: a column of numbers or dates, best an indexed key, by whose ranges several workers read at once;
        the rows of each range are counted before and after, and a table that changes meanwhile is an error. None reads
        all rows by one statement.
      partitions: how many ranges.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: a static range, for queries with TFX's span macros.
      options: shards, compression, shuffle.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(SqlExecutor)
    DRIVER_CLASS = SqlDriver

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
        source = sql.SqlOptions(connection_env, partition_column, partitions)
        super().__init__(
            input_config=_input_config(query, table, input_config),
            output_config=output_config,
            range_config=range_config,
            custom_config=executor.pack(options or IngestOptions(), asdict(source)),
        )


class BigQueryExampleGen(component.QueryBasedExampleGen):
    """BigQuery's tables, or the results of queries -> sharded tf.Examples, by the Storage Read API.

    All workers see the table as it was when the reading began. Credentials are the machine's own. A second run takes
    the first one's result as long as the query and the tables that it reads are unchanged; a query that depends on the
    time of day needs another text. Kubeflow Pipelines goes by the query's text alone.

    Args:
      query: what to read, or
      table: its name, `project.dataset.table`, or
      input_config: several of either, each a split of its own.
      bigquery: who pays, which columns and rows to read, how many streams.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: a static range, for queries with TFX's span macros.
      options: shards, compression, shuffle.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(BigQueryExecutor)
    DRIVER_CLASS = BigQueryDriver

    def __init__(
        self,
        query: str | None = None,
        table: str | None = None,
        input_config: Any = None,
        bigquery: BigQueryOptions | None = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        super().__init__(
            input_config=_input_config(query, table, input_config),
            output_config=output_config,
            range_config=range_config,
            custom_config=executor.pack(options or IngestOptions(), asdict(bigquery or BigQueryOptions())),
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
