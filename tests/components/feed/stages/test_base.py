"""What holds for all stages, of every plan there is."""

import itertools
import subprocess
import sys

import pytest
import tensorflow as tf

from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import SINGLE_WORKER, FeedOptions, GlobalBatch, WorkerContext
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import RecordRange, ShardFile
from infeed.components.feed.stages.base import BatchFunctions, BuildContext

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

SHARDS = tuple(ShardFile(f"part-{number}", 10, 100, split="old" if number < 2 else "new") for number in range(4))
TIERS = (
    {"tier": "columns"},
    {"tier": "disk"},
    {"tier": "stream", "cache_records": True},
    {"tier": "stream", "cache_records": False},
    {"tier": "stream", "cache_records": False, "mix": {"old": 1, "new": 2}},
)


def stages(tier, training):
    spec = FeedSpec(training, RecordSizes(100, 400), "shifts" if training else "", "normalizes", static_shapes=True)
    return plan(SHARDS, spec, FeedOptions(batch_size=8, **tier), Machine(2, 1 << 30)).stages


PLANS = [stages(tier, training) for tier in TIERS for training in (True, False)]
BY_ROWS = plan(
    SHARDS, FeedSpec(True, RecordSizes(100, 400), devices=("CPU:0",)), FeedOptions(batch_size=8), Machine(2, 1 << 30)
).stages


def context(*, workers=SINGLE_WORKER, readers=None, training=True, start_step=0):
    functions = BatchFunctions(parse=lambda records: records, transform=lambda features: features)
    return BuildContext(SHARDS, GlobalBatch(8, 7, workers), training, functions, readers or workers, start_step)


@pytest.mark.parametrize("some", [*PLANS, BY_ROWS])
def test_each_stage_takes_what_the_one_before_it_makes(some):
    made = [{"return": "None"}, *(stage.apply.__annotations__ for stage in some)]
    for before, after in itertools.pairwise(made):
        assert after["before"] == before["return"]
    assert made[-1]["return"] == ("RowBatches" if some is BY_ROWS else "tf.data.Dataset")


@pytest.mark.parametrize("some", [*PLANS, BY_ROWS])
def test_stages_can_be_compared_and_say_what_they_do_and_why(some):
    assert all(hash(stage) == hash(stage) and stage.name and stage.does and stage.reason for stage in some)


def test_plans_and_input_functions_need_no_tensorflow():
    imports = "import sys, infeed.components.feed.plan, infeed.components.feed.inputs"
    subprocess.run([sys.executable, "-c", f"{imports}; sys.exit('tensorflow' in sys.modules)"], check=True)


def test_workers_that_stream_share_the_files_and_count_their_own_records():
    second = context(workers=WorkerContext(1, 2), start_step=5)
    assert second.ranges == (RecordRange("part-1", 0, 10, True), RecordRange("part-3", 0, 10, True))
    assert (second.records, second.batch.part, second.first_record) == (20, 4, 20)


def test_workers_that_evaluate_share_records_evenly():
    assert [context(workers=WorkerContext(i, 3), training=False).records for i in range(3)] == [13, 13, 14]


def test_where_rows_are_kept_each_worker_reads_all_of_them():
    kept = context(workers=WorkerContext(1, 2), readers=SINGLE_WORKER)
    assert (kept.records, kept.batch.part) == (40, 4)


def test_each_split_is_shared_by_itself():
    weights = SamplingWeights("split", ("new", "old"), (1.0, 1.0))
    new, old = context(workers=WorkerContext(0, 2)).ranges_of_splits(weights)
    assert [one.path for one in (*new, *old)] == ["part-2", "part-0"]


def test_no_two_uses_of_an_epoch_and_no_two_epochs_have_the_same_seed():
    uses = [(epoch, use) for epoch in (-1, 0, 1, 2) for use in (0, 1, 2)]
    seeds = [context().derive_seed(tf.constant(epoch, tf.int64), use).numpy().tolist() for epoch, use in uses]
    assert len({tuple(seed) for seed in seeds}) == len(uses)
