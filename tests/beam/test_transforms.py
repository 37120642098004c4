from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam import Create, Map, ParDo
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that, equal_to

from recsys_cg.beam.coders import BlockCoder, TableCoder
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.flags import check_flags
from recsys_cg.beam.interactions import REJECTS, TALLY, CleanInteractions
from recsys_cg.beam.reading import ReadBlocks, WriteRejects
from recsys_cg.beam.runner import open_pipeline
from recsys_cg.beam.spill import GroupByUser, read_spilled
from recsys_cg.beam.tallies import merge_tallies, tally
from recsys_cg.config import DatasetConfig, InteractionsConfig
from recsys_cg.data.blocks import Block, empty_rejects, rejects_of
from recsys_cg.data.interactions import shard_of
from recsys_cg.data.sources import list_files, plan_reads
from recsys_cg.errors import ConfigError, EngineError, SourceError, TooManyRejectsError


def _block() -> Block:
    table = pa.table({"user_id": ["a", None, "b"], "item_id": ["x", "y", "z"], "timestamp": [1, 2, 3]})
    return Block(table, "f ü.csv", np.array([1, 2, 4]), rejects_of("f ü.csv", [(3, "wrong_number_of_fields", {})]))


def _as_is(table: pa.Table) -> pa.Table:
    return table


def test_blocks_and_tables_survive_their_coders() -> None:
    block = _block()
    again = BlockCoder().decode(BlockCoder().encode(block))
    assert again.table.equals(block.table)
    assert again.rejects.equals(block.rejects)
    assert again.numbers.tolist() == [1, 2, 4]
    assert again.source == "f ü.csv"
    table = pa.table({"a": pa.array(["x", "x"]).dictionary_encode()}).slice(1)
    assert TableCoder().decode(TableCoder().encode(table)).equals(table)
    assert TableCoder().decode(TableCoder().encode(table.slice(0, 0))).schema == table.schema


def test_reading_spreads_pieces_and_gives_blocks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n3\n")
    reads = plan_reads(list_files(str(tmp_path)), ["x"])
    with test_pipeline.TestPipeline(FnApiRunner()) as pipeline:
        blocks = pipeline | Create(reads) | ReadBlocks(2, Failures(tmp_path / "failures"))
        shapes = blocks | Map(lambda block: (Path(block.source).name, block.numbers.tolist()))
        assert_that(shapes, equal_to([("a.csv", [1, 2]), ("a.csv", [3]), ("b.csv", [1, 2]), ("b.csv", [3])]))


def test_cleaning_gives_events_rejects_and_counts(tmp_path: Path) -> None:
    clean = CleanInteractions(InteractionsConfig(path="f"), DatasetConfig(), Failures(tmp_path / "failures"))
    with test_pipeline.TestPipeline(FnApiRunner()) as pipeline:
        outputs = pipeline | Create([_block()]) | ParDo(clean).with_outputs(REJECTS, TALLY, main="events")
        users = outputs["events"] | "Users" >> Map(lambda table: table["user_id"].to_pylist())
        rows = outputs[REJECTS] | "Rows" >> Map(lambda table: table["row"].to_pylist())
        counts = outputs[TALLY] | "Counts" >> Map(lambda one: (one["rows"], one["rejected"]))
        assert_that(users, equal_to([["a", "b"]]), label="users")
        assert_that(rows, equal_to([[3, 2]]), label="rows")
        assert_that(counts, equal_to([(4, {"wrong_number_of_fields": 1, "missing_user": 1})]), label="counts")


def test_grouping_brings_a_users_rows_together_and_opens_every_shard(tmp_path: Path) -> None:
    tables = [
        pa.table({"user_id": [f"u{n}" for n in range(start, 12, 3)], "n": list(range(start, 12, 3))})
        for start in range(3)
    ]
    with test_pipeline.TestPipeline(FnApiRunner()) as pipeline:
        grouped = pipeline | Create(tables) | GroupByUser(tmp_path / "spill", 20, _as_is)
        found = grouped | Map(
            lambda pair: (pair[0], sorted(n for table in read_spilled(pair[1]) for n in table["n"].to_pylist()))
        )
        shards = shard_of(pa.array([f"u{n}" for n in range(12)]), 20)
        assert_that(found, equal_to([(shard, np.flatnonzero(shards == shard).tolist()) for shard in range(20)]))


def test_a_worker_that_meets_bad_data_tells_it_and_later_steps_do_nothing(tmp_path: Path) -> None:
    failures = Failures(tmp_path / "failures")

    def work(error: Exception | None) -> Any:
        yield 1
        if error:
            raise error

    assert list(failures.guard(lambda: work(None))) == [1]
    failures.raise_first()
    assert list(failures.guard(lambda: work(SourceError("b")))) == [1]
    failures.record(TooManyRejectsError("a"))
    assert list(failures.guard(lambda: work(None))) == []
    with pytest.raises(TooManyRejectsError, match=r"^a$"):
        failures.raise_first()


def test_a_defect_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(Failures(tmp_path / "failures").guard(lambda: (1 // n for n in [0])))


def test_rejects_written_twice_are_there_once(tmp_path: Path) -> None:
    writer = WriteRejects(tmp_path / "rejects")
    for _ in range(2):
        list(writer.process(_block().rejects))
    (path,) = (tmp_path / "rejects").glob("*.parquet")
    assert pq.ParquetFile(path).read().equals(_block().rejects)


def test_tallies_add_up_in_any_order() -> None:
    parts = [
        tally(rows=3, rejects=rejects_of("b", [(2, "x", 1), (1, "x", 2)]), kept=1),
        tally(rows=2, filtered={"f": 1}, rejects=rejects_of("a", [(9, "x", 3)])),
        tally(rejects=empty_rejects()),
    ]
    whole = merge_tallies(parts)
    assert whole == merge_tallies([merge_tallies(parts[1:]), parts[0]])
    assert (whole["rows"], whole["filtered"], whole["rejected"], whole["more"]) == (5, {"f": 1}, {"x": 3}, {"kept": 1})
    assert whole["examples"] == {"x": ["a", 9, "3"]}


def test_a_runner_that_does_not_exist_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="NoSuchRunner"), open_pipeline(["--runner=NoSuchRunner"]):
        pass


@pytest.mark.parametrize("endpoint", ["localhost:1", "localhost"])
def test_a_job_server_that_does_not_answer_is_said_at_once(endpoint: str) -> None:
    flags = ["--runner=PortableRunner", f"--job_endpoint={endpoint}"]
    with pytest.raises(ConfigError, match=f"no job server answers at --job_endpoint={endpoint} "), open_pipeline(flags):
        pass


def test_an_engine_that_cannot_be_started_is_an_error_of_the_engine(tmp_path: Path) -> None:
    flags = ["--runner=FlinkRunner", f"--flink_job_server_jar={tmp_path / 'none.jar'}"]
    with pytest.raises(EngineError, match=r"none\.jar"), open_pipeline(flags) as pipeline:
        _ = pipeline | Create([1])


def test_a_value_that_beam_refuses_when_the_job_starts_is_an_error_of_the_configuration() -> None:
    with (
        pytest.raises(ConfigError, match="flink_version=9"),
        open_pipeline(["--runner=FlinkRunner", "--flink_version=9"]) as pipeline,
    ):
        _ = pipeline | Create([1])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--direct_num_worker=2"],
            r"--direct_num_worker=2: Beam has no such option; did you mean --direct_num_workers\?",
        ),
        (["--direct_num_workers=2", "--paralelism", "4"], r"--paralelism: .*did you mean --parallelism\?"),
        (["--runner=FlinkRunner", "--fink_version=1.20"], r"--fink_version=1\.20: .*did you mean --flink_version\?"),
        (["FlinkRunner"], r"FlinkRunner: Beam has no such option"),
        (["--direct_num_workers=many"], r"Beam refuses the runner flags"),
    ],
)
def test_a_flag_that_beam_does_not_know_is_refused_with_the_nearest(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message), open_pipeline(flags):
        pass


def test_a_flag_that_the_job_server_describes_is_taken() -> None:
    class Service(beam_job_api_pb2_grpc.JobServiceServicer):  # type: ignore[misc]
        def DescribePipelineOptions(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's word
            kind = beam_job_api_pb2.PipelineOptionType
            options = [
                beam_job_api_pb2.PipelineOptionDescriptor(name="objectReuse", type=kind.BOOLEAN),
                beam_job_api_pb2.PipelineOptionDescriptor(name="parallelism", type=kind.INTEGER),
            ]
            return beam_job_api_pb2.DescribePipelineOptionsResponse(options=options)

    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(Service(), server)
        port = server.add_insecure_port("localhost:0")
        server.start()
        flags = ["--runner=PortableRunner", f"--job_endpoint=localhost:{port}", "--parallelism=2"]
        try:
            check_flags([*flags, "--objectReuse"])
            with pytest.raises(ConfigError, match=r"--objectReus: .*did you mean --objectReuse\?"):
                check_flags([*flags, "--objectReus"])
        finally:
            server.stop(None).wait()
