"""The serving loop over arrays: compiled equals plain, its tables equal the cost model, its books balance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.graph_cache import DECODE, PREFILL, GraphCache, GraphGrid, decode_batches, sequences_up_to
from testbed.serving.iterated_work import QUIET, Disturbance
from testbed.serving.iteration import NEVER, Driver, Limits, _decode_time, serve
from testbed.serving.iteration_tables import step_tables
from testbed.serving.models import MODELS

CONTEXT = 4_096
RESIDENT = Driver(2_000, 3_000, window=120, relaunch=8_500, idle_first=3_000, idle_most=200_000)
HOST = Driver(
    14_900, 900, serial=700_000, prefill=300_000, update=900_000, update_a_lane=4_000, deliver_a_lane=5_000,
    overlapped=True,
)  # fmt: skip
LIMITS = Limits(max_batch=8, prefills_per_pause=2, blocks=300)


def tables(model="llama-3-8b", batch=8):
    sequences = sequences_up_to(CONTEXT)
    grid = GraphCache(GraphGrid(PREFILL, (1,), sequences), GraphGrid(DECODE, decode_batches(batch), sequences), 1)
    return step_tables(CostModel(read_profile(MODELS[model].profile)), grid)


TABLES = tables()


def neighbours(seed=1, slowdown=1.4, stalls=0.2):
    chance = np.random.default_rng(seed).random(1_000)
    return Disturbance(slowdown, stalls / 1e6, np.array([1e5, 2e6, 4e6]), np.array([1e4, 3e5]), chance)


def served(requests, driver=RESIDENT, disturbance=QUIET, limits=LIMITS, compiled=False, **bounds):
    ready, prompts, outputs = (np.array(column, np.int64) for column in zip(*sorted(requests), strict=True))
    blocks = -(-(prompts + outputs) // 32)
    return serve(ready, prompts, outputs, blocks, TABLES, limits, driver, disturbance, compiled=compiled, **bounds)


requests = st.lists(
    st.tuples(st.integers(0, 400_000_000), st.integers(1, 3_000), st.integers(1, 60)), min_size=1, max_size=30
)
drivers = st.sampled_from(
    [
        RESIDENT,
        RESIDENT._replace(window=2),
        HOST,
        HOST._replace(overlapped=False),
        HOST._replace(serial_a_lane=90_000),
        HOST._replace(one_process=True),
        HOST._replace(update=15_000_000),
        HOST._replace(update=15_000_000, one_process=True),
    ]
)


@settings(max_examples=40, deadline=None)
@given(requests, drivers, st.sampled_from([QUIET, neighbours()]))
def test_compiled_and_plain_agree(queue, driver, disturbance):
    plain = served(queue, driver, disturbance)
    native = served(queue, driver, disturbance, compiled=True)
    for left, right in zip(plain, native, strict=True):
        assert np.array_equal(left, right)


@settings(max_examples=100, deadline=None)
@given(requests, drivers)
def test_every_token_is_given_once_and_nobody_overtakes(queue, driver):
    ordered = sorted(queue)
    outcome = served(queue, driver)
    assert (outcome.first >= [ready for ready, _, _ in ordered]).all()
    assert (np.diff(outcome.first) > 0).all()
    assert outcome.batch.sum() == sum(outputs - 1 for _, _, outputs in ordered)
    assert (np.diff(outcome.ends) > 0).all()
    assert 0 < outcome.batch.max(initial=1) <= LIMITS.max_batch
    for (_, _, outputs), first, joined in zip(ordered, outcome.first, outcome.joined, strict=True):
        if outputs > 1:
            assert first < outcome.ends[joined] <= outcome.ends[joined + outputs - 2]


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("batch", [1, 3, 8, 17, 80])
def test_steps_take_what_the_cost_model_says(model, batch):
    cost_model = CostModel(read_profile(MODELS[model].profile))
    own = tables(model, batch=80)
    rounded = int(own.graph_batch[batch])
    for context in (batch, 700 * batch, 5_000 * batch, 40_000 * batch):
        assert _decode_time(own, batch, context) == cost_model.decode(rounded, context).duration
    for prompt in (1, 128, 129, 1_000, 4_096):
        (captured,) = [step for step in (*sequences_up_to(CONTEXT),) if step >= prompt][:1]
        assert own.prefill[prompt] == cost_model.prefill(captured).duration


def steps(driver):
    """Mean time of a decode step of one long answer, its first and last steps left out."""
    return np.diff(served([(0, 500, 60)], driver).ends)[3:-3].mean()


def test_work_beside_the_graph_costs_nothing_while_it_fits_there():
    base = HOST._replace(update=0, update_a_lane=0, deliver_a_lane=0)
    alone = steps(base)
    assert steps(base._replace(update=5_000_000)) == pytest.approx(alone, rel=1e-6)
    beyond = 20_000_000
    assert steps(base._replace(update=beyond)) == pytest.approx(beyond, rel=1e-6)
    in_turn = steps(base._replace(update=5_000_000, overlapped=False))
    assert in_turn == pytest.approx(alone + 5_000_000, rel=1e-6)


def test_the_speed_up_is_one_over_one_minus_the_hosts_share():
    base = Driver(0, 0, overlapped=False)
    for host in (1_000_000, 4_000_000, 16_000_000):
        outcome = served([(0, 500, 60)], base._replace(serial=host))
        share = outcome.exposed / (outcome.exposed + outcome.busy)
        assert steps(base._replace(serial=host)) / steps(base) == pytest.approx(1 / (1 - share), rel=0.03)


def test_exposed_time_is_what_the_accelerator_stood_still_between_launches():
    driver = HOST._replace(overlapped=False, deliver_a_lane=0)
    outcome = served([(0, 500, 50), (0, 700, 90)], driver)
    launches = len(outcome.ends) + 2
    before_the_first = driver.launch + driver.serial + driver.prefill
    after_the_last = driver.look + driver.update + driver.update_a_lane
    assert before_the_first + outcome.busy + outcome.exposed + after_the_last == outcome.ends[-1]
    assert outcome.work + launches * (driver.launch + driver.look) + outcome.busy == outcome.ends[-1]


def test_neighbours_act_on_the_host_and_not_on_the_accelerator():
    queue = [(0, 500, 200)]
    alone, beside = served(queue, HOST), served(queue, HOST, neighbours())
    assert beside.busy == alone.busy
    assert beside.ends[-1] > alone.ends[-1]
    assert np.array_equal(served(queue, RESIDENT).ends, served(queue, RESIDENT, neighbours()).ends)


def test_stalls_come_as_often_as_they_were_measured():
    driver = Driver(0, 0, serial=1_000_000)
    disturbance = neighbours(slowdown=1.0, stalls=0.5)._replace(stall=np.array([2e6]), wake=np.array([0.0]))
    queue = [(0, 10, 500)] * 8
    one = LIMITS._replace(max_batch=1)
    alone, beside = served(queue, driver, limits=one), served(queue, driver, disturbance, limits=one)
    assert (beside.work - alone.work) / 2e6 == pytest.approx(0.5 * len(queue) * 500, rel=0.1)


def test_a_run_that_is_cut_off_leaves_requests_without_an_end():
    queue = [(0, 500, 20), (0, 500, 40), (0, 500, 60)]
    whole = served(queue)
    cut = served(queue, until=int(whole.last[1]) - 1)
    assert cut.last.tolist() == [whole.last[0], whole.last[1], NEVER]
    assert (cut.first == whole.first).all()


def test_the_window_costs_one_relaunch_for_so_many_launches():
    queue = [(0, 10, 500)]
    free = served(queue, RESIDENT._replace(window=0))
    bound = served(queue, RESIDENT)
    assert bound.ends[-1] - free.ends[-1] == 500 // 120 * RESIDENT.relaunch


def test_a_request_that_no_pool_could_hold_is_refused():
    with pytest.raises(ValueError, match="larger than the KV pool"):
        served([(0, 3_000, 3_000)], limits=LIMITS._replace(blocks=100))
