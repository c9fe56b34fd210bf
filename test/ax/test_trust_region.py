"""Trust regions in Ax's search spaces, and what their trials note of them."""

import json
import random
import statistics
from collections import Counter
from types import MappingProxyType
from typing import Any

import pytest
import torch
from ax.adapter.cross_validation import cross_validate
from ax.api.client import Client
from ax.api.configs import (
    ChoiceParameterConfig,
    RangeParameterConfig,
)
from ax.api.protocols import IMetric, IRunner
from ax.core.experiment import Experiment
from ax.core.map_metric import MapMetric
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax_problems import (
    BOX,
    MIXED,
    NO_THRESHOLDS,
    branin,
    floats,
    mixed,
    storage,
)
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.ax import trust_region_generation_strategy
from botorch_sparse.ax.encoded_box import EncodedBox
from botorch_sparse.ax.trial_data import NOTE, last_note
from botorch_sparse.strategies import TrustRegionBBKB
from botorch_sparse.strategies.trust_region import trust_region

LIMIT = "k <= 6*x + 6"


def mixed_client(
    make_client: Any, random_seed: int | None = None, **options: Any
) -> Client:
    strategy = trust_region_generation_strategy(6, seed=0, **options)
    return make_client(
        strategy, MIXED, parameter_constraints=[LIMIT], random_seed=random_seed
    )


def evaluated(client: Client, num: int, size: int = 1) -> list[dict[str, Any]]:
    """What was asked for, in so many calls: different points of the space."""
    asked = list[dict[str, Any]]()
    for _ in range(num):
        for index, point in client.get_next_trials(size).items():
            client.complete_trial(index, raw_data={"f": mixed(**point)})
            asked.append(point)
    for point in asked:
        assert point["kind"] in "abc" and point["level"] in (1, 2, 4)
        assert isinstance(point["k"], int) and 1 <= point["k"] <= 8
        assert 0 <= point["x"] <= 1 and 1e-4 <= point["rate"] <= 1
        assert point["k"] <= 6 * point["x"] + 6 + 1e-6
    assert len({json.dumps(point) for point in asked}) == len(asked)
    return asked


def note_of(client: Client) -> dict[str, Any]:
    note = last_note(client._experiment)["regions"]
    return {**note, **note["strategy"]}


@pytest.mark.slow
def test_mixed_spaces_are_searched(make_client):
    """Logarithms, integers, ordered and unordered choices, and a constraint.

    The best value is 0.7; a run may end at 0.2, with another kind.
    """
    best = []
    for seed in range(3):
        client = mixed_client(make_client, batch_size=4, random_seed=seed)
        asked = evaluated(client, 13, size=4)
        best.append(max(mixed(**point) for point in asked))
    assert statistics.median(best) > 0.68


@pytest.mark.slow
def test_regions_are_those_of_the_strategy(make_client):
    """Against `TrustRegionBBKB` that was told the same points one by one.

    Without noise a region depends on points and values alone.
    """
    strategy = trust_region_generation_strategy(5, seed=0)
    client = make_client(strategy, floats(BOX))
    told = TrustRegionBBKB(
        bounds=torch.tensor(list(BOX.values())).T.double(),
        batch_size=1,
        num_initial=5,
    )
    lengths = set()
    for number in range(30):
        ((index, point),) = client.get_next_trials(1).items()
        if number > 5:
            (noted,) = note_of(client)["regions"]
            (region,) = told.regions
            assert noted["length"] == region.length
            assert (noted["successes"], noted["failures"]) == (
                region.successes,
                region.failures,
            )
            center = told.record.points(torch.tensor([region.center]))
            assert noted["center"] == pytest.approx(center[0].tolist())
            lengths.add(region.length)
        client.complete_trial(index, raw_data={"f": branin(**point)})
        told.tell([list(point.values())], [branin(**point)])
    assert len(lengths) > 1


@pytest.mark.parametrize("before", [7, pytest.param(14, marks=pytest.mark.slow)])
def test_saved_and_loaded_in_the_middle(before, make_client, tmp_path):
    """From JSON, from sqlite, and in memory: the same next arms and the same note."""
    config = storage(tmp_path / "ax.db")
    strategy = trust_region_generation_strategy(6, batch_size=2, seed=0)
    client = make_client(
        strategy, MIXED, parameter_constraints=[LIMIT], storage_config=config
    )
    evaluated(client, before)
    failed, _ = client.get_next_trials(2)  # the other one stays pending
    client.mark_trial_failed(failed)
    client.save_to_json_file(str(tmp_path / "ax.json"))
    from_json = Client.load_from_json_file(str(tmp_path / "ax.json"))
    from_sql = Client.load_from_database("test", storage_config=config)
    (sql,) = from_sql._generation_strategy.gen(from_sql._experiment, n=1)
    expected = from_json.get_next_trials(2)
    assert client.get_next_trials(2) == expected
    assert sql[0].arms[0].parameters == expected[before + 2]
    assert note_of(client) == note_of(from_json)
    for one in (client, from_json):
        evaluated(one, 2, size=2)
    assert client.get_next_trials(1) == from_json.get_next_trials(1)


class Laboratory(IRunner, IMetric):
    """Runs mixed problems: each takes two looks, and one in five fails."""

    def __init__(self) -> None:
        IMetric.__init__(self, "f")
        self.points, self.looks = {}, Counter()

    def run_trial(self, trial_index, parameterization):
        self.points[trial_index] = parameterization
        return {}

    def poll_trial(self, trial_index, trial_metadata):
        self.looks[trial_index] += 1
        if self.looks[trial_index] < 2:
            return TrialStatus.RUNNING
        fails = trial_index % 5 == 3
        return TrialStatus.FAILED if fails else TrialStatus.COMPLETED

    def fetch(self, trial_index, trial_metadata):
        return 0, mixed(**self.points[trial_index])


@pytest.mark.slow
def test_the_orchestrator_runs_them(make_client, tmp_path):
    """Three at a time with failures; it goes on from JSON, and pending trials count."""
    client, laboratory = mixed_client(make_client), Laboratory()
    path = str(tmp_path / "ax.json")

    def run(client, num):
        client.configure_runner(laboratory)
        client.configure_metrics([laboratory])
        client.run_trials(num, parallelism=3, initial_seconds_between_polls=0)
        return client

    run(client, 9)
    client._experiment.runner = None  # Ax saves those alone that are registered there
    client.configure_metrics([MapMetric("f")])
    client.save_to_json_file(path)
    loaded = run(Client.load_from_json_file(path), 6)
    points = [json.dumps(point) for point in laboratory.points.values()]
    assert len(set(points)) == 15
    note = note_of(loaded)
    learned = {n for first, last in note["learned"] for n in range(first, last + 1)}
    assert max(learned) >= 10 and not learned & {3, 8, 13}  # those that failed
    (region,) = note["regions"]
    (before,) = note_of(client)["regions"]
    assert region["center"] and region["run"] == before["run"]


HIERARCHY = [
    ChoiceParameterConfig(
        name="kind",
        values=["a", "b", "c"],
        parameter_type="str",
        is_ordered=False,
        dependent_parameters={"a": ["x", "k"], "b": ["y"]},
    ),
    *floats({"x": (0.0, 1.0), "y": (0.0, 1.0), "z": (0.0, 1.0)}),
    RangeParameterConfig(name="k", bounds=(1, 4), parameter_type="int"),
]
ACTIVE = {"a": {"kind", "x", "k", "z"}, "b": {"kind", "y", "z"}, "c": {"kind", "z"}}


def branches(kind, z, x=0.0, k=0, y=0.0):
    """To maximize; the best value is 1.4."""
    value = {"a": 1 - (x - 0.7) ** 2 + 0.1 * k, "b": 1 - (y - 0.2) ** 2, "c": 0.5}
    return value[kind] - (z - 0.3) ** 2


@pytest.mark.slow
def test_parameters_that_depend_on_others(make_client, tmp_path):
    """Arms have the active ones alone, whoever made them; saved in the middle."""
    strategy = trust_region_generation_strategy(6, batch_size=2, seed=0)
    client, path = make_client(strategy, HIERARCHY), str(tmp_path / "ax.json")
    attached = client.attach_trial({"kind": "b", "y": 0.9, "z": 0.6})
    client.complete_trial(attached, raw_data={"f": branches("b", 0.6, y=0.9)})
    for number in range(12):
        for index, point in client.get_next_trials(2).items():
            assert set(point) == ACTIVE[point["kind"]]
            client.complete_trial(index, raw_data={"f": branches(**point)})
        if number == 7:
            client.save_to_json_file(path)
            asked = client.get_next_trials(1)
            client = Client.load_from_json_file(path)
            assert client.get_next_trials(1) == asked
            client.mark_trial_abandoned(*asked)
    (region,) = note_of(client)["regions"]
    assert region["center"] and note_of(client)["learned"][0][0] == 0
    best, values, *_ = client.get_best_parameterization(use_model_predictions=False)
    assert best["kind"] == "a" and values["f"][0] > 1.37


def test_failed_and_abandoned_trials_count_for_nothing(make_client):
    client = mixed_client(make_client)
    evaluated(client, 12)
    before = None
    for mark in (client.mark_trial_failed, client.mark_trial_abandoned):
        for index in client.get_next_trials(3):
            mark(index)
        (region,) = note_of(client)["regions"]
        now = (region["length"], region["failures"], region["successes"])
        before = before or now
        assert now == before
    assert len(evaluated(client, 2)) == 2


def test_pending_points_are_not_proposed_again(make_client):
    """Of six workers, of which the first results come last."""
    client = mixed_client(make_client)
    evaluated(client, 8)
    pending = dict(client.get_next_trials(2))
    for _ in range(4):
        pending |= client.get_next_trials(1)
    assert len({json.dumps(point) for point in pending.values()}) == 6
    for index, point in reversed(pending.items()):
        client.complete_trial(index, raw_data={"f": mixed(**point)})
        evaluated(client, 1)
    assert note_of(client)["learned"][0][0] == 0


def switches(make_client: Any, num: int, **options: Any) -> Client:
    """A client of whole numbers, 0 or 1."""
    parameters = [
        RangeParameterConfig(name=f"s{i}", bounds=(0, 1), parameter_type="int")
        for i in range(num)
    ]
    return make_client(trust_region_generation_strategy(4, seed=0), parameters)


def test_arms_that_are_out_or_failed_are_no_candidates(make_client):
    """Of 64 arms, where the best ones fail and each result comes four trials late."""
    client, asked, late = switches(make_client, 6), [], []
    for _ in range(30):
        ((index, point),) = client.get_next_trials(1).items()
        asked.append(tuple(point.values()))
        if point["s0"] and point["s1"]:
            client.mark_trial_failed(index)
            continue
        late.append((index, point))
        if len(late) > 4:
            first, old = late.pop(0)
            client.complete_trial(first, raw_data={"f": sum(old.values())})
    ours = asked[len(asked) - 20 :]
    assert len({*ours}) == 20
    assert not {*ours} & {*asked[:10]}


@pytest.mark.slow
def test_constraints_leave_switches_free(make_client):
    """One that is never active, on a number."""
    parameters = [
        *(
            RangeParameterConfig(name=f"s{i}", bounds=(0, 1), parameter_type="int")
            for i in range(8)
        ),
        RangeParameterConfig(name="x", bounds=(0.0, 1.0), parameter_type="float"),
        RangeParameterConfig(name="y", bounds=(0.0, 1.0), parameter_type="float"),
    ]
    client = make_client(
        trust_region_generation_strategy(8, batch_size=4, seed=0),
        parameters,
        parameter_constraints=["x + y <= 1.9"],
    )
    best = 0.0
    for _ in range(12):
        for index, point in client.get_next_trials(4).items():
            value = sum(v for name, v in point.items() if name[0] == "s")
            best = max(best, value)
            client.complete_trial(index, raw_data={"f": value})
    assert best == 8


@pytest.mark.slow
def test_another_objective_begins_anew(make_client, tmp_path):
    client = switches(make_client, 6)
    for _ in range(12):
        for index, point in client.get_next_trials(1).items():
            value = sum(point.values())
            client.complete_trial(index, raw_data={"f": value})
    before = note_of(client)
    client.configure_optimization(objective="-f")
    client.save_to_json_file(str(tmp_path / "ax.json"))  # Ax keeps the old one else
    client = Client.load_from_json_file(str(tmp_path / "ax.json"))
    client.get_next_trials(1)
    after = note_of(client)
    assert before["space"] != after["space"]
    assert after["regions"][0]["center"] != before["regions"][0]["center"]


def test_batch_trials(make_client):
    """Arms of one trial, and a batch larger than `batch_size`."""
    client = mixed_client(make_client, batch_size=2)
    evaluated(client, 7)
    experiment: Experiment = client._experiment
    strategy: GenerationStrategy = client._generation_strategy
    (runs,) = strategy.gen(experiment, n=5)
    assert len(runs[0].arms) == 5
    notes = [
        metadata[NOTE]
        for metadata in runs[0].candidate_metadata_by_arm_signature.values()
    ]
    assert [note["run"] for note in notes] == [0] * 5
    assert all(note["regions"] == notes[0]["regions"] for note in notes)


def test_trials_of_other_origin(make_client, attach):
    """Attached points are learned, and the region begins at the best of them."""
    client = mixed_client(make_client)
    rng = random.Random(0)
    points = [
        {
            "kind": rng.choice("abc"),
            "level": rng.choice([1, 2, 4]),
            "k": rng.randint(1, 6),
            "x": rng.random(),
            "rate": 10 ** rng.uniform(-4, 0),
        }
        for _ in range(30)
    ]
    attach(client, [(point, {"f": mixed(**point)}) for point in points])
    client.get_next_trials(1)
    best = max(points, key=lambda point: mixed(**point))
    (region,) = note_of(client)["regions"]
    level, k, x, rate, kind = region["center"]
    assert (k, x) == (best["k"], pytest.approx(best["x"]))
    assert 10**rate == pytest.approx(best["rate"])
    assert 10**level == pytest.approx(best["level"])
    assert "abc"[int(kind)] == best["kind"]


@pytest.mark.slow
def test_a_region_that_ends_begins_anew(make_client, monkeypatch):
    """With points from all of the space; what came before stays out of its run."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.1)
    client = make_client(trust_region_generation_strategy(4, seed=0), floats(BOX))
    worst = 0.0
    runs = []
    for _ in range(26):
        ((index, _),) = client.get_next_trials(1).items()
        worst -= 1.0
        client.complete_trial(index, raw_data={"f": worst})
        note = last_note(client._experiment)
        runs.append(0 if note is None else note["run"])
    assert runs[-1] == 1 and sorted(runs) == runs
    (region,) = note_of(client)["regions"]
    assert region["run"] == 1 and region["start"] == runs.index(1)


@pytest.mark.slow
@NO_THRESHOLDS
def test_several_objectives_and_constraints(make_client):
    """Five regions; the reference point is noted, and the limit is kept in the end."""
    client = make_client(
        trust_region_generation_strategy(8, batch_size=4, seed=0),
        floats(BOX),
        objective="f, -g",
        constraints=["h <= 2.0"],
    )

    def outcomes(x1: float, x2: float) -> dict[str, float]:
        return {"f": branin(x1, x2), "g": x1**2 + x2, "h": x2 / 4}

    for _ in range(6):
        for index, point in client.get_next_trials(4).items():
            client.complete_trial(index, raw_data=outcomes(**point))
    regions = note_of(client)["regions"]
    assert len(regions) == 5 and all(region["center"] for region in regions)
    arms = [trial.arm.parameters for trial in client._experiment.trials.values()]
    is_kept = [outcomes(**point)["h"] <= 2.0 for point in arms]
    assert sum(is_kept[-12:]) > sum(is_kept[:8]) * 12 / 8
    assert len(client.get_pareto_frontier(use_model_predictions=False)) > 2


def test_choices_alone(make_client):
    """A space without numbers: each arm once, until there is none left."""
    parameters = [
        ChoiceParameterConfig(
            name=name, values=["a", "b", "c"], parameter_type="str", is_ordered=False
        )
        for name in ("p", "q", "r")
    ]
    client = make_client(trust_region_generation_strategy(5, seed=0), parameters)
    asked = []
    for _ in range(20):
        ((index, point),) = client.get_next_trials(1).items()
        asked.append("".join(point.values()))
        client.complete_trial(index, raw_data={"f": asked[-1].count("c")})
    assert len(set(asked)) == 20 and "ccc" in asked


def test_predictions(make_client, monkeypatch):
    """Of new arms by the regions' posterior; of others by a model that waits for it.

    From some starts, once in 24, Ax moves values that lie apart before it scales them.
    """
    client = mixed_client(make_client, random_seed=0)
    values = [mixed(**point) for point in evaluated(client, 16)]
    posteriors = list[tuple[Tensor, Tensor]]()

    def predict(self: TrustRegionBBKB, X: Tensor) -> tuple[Tensor, Tensor] | None:
        posteriors.append(of_regions(self, X))
        return posteriors[-1]

    of_regions = TrustRegionBBKB.predict
    monkeypatch.setattr(TrustRegionBBKB, "predict", predict)
    ((index, _),) = client.get_next_trials(1).items()
    run = client._experiment.trials[index].generator_run
    mean, covariance = run.model_predictions
    ((learned, sd),) = posteriors  # of values that Ax standardized
    unit = statistics.stdev(values)
    expected = statistics.mean(values) + unit * float(learned)
    assert mean["f"][0] == pytest.approx(expected)
    assert covariance["f"]["f"][0] == pytest.approx((unit * float(sd)) ** 2)
    adapter = client._generation_strategy.adapter
    assert adapter.generator._surrogate is None
    others = [client._experiment.trials[trial].arm.parameters for trial in range(16)]
    predicted = [each["f"][0] for each in client.predict(others)]
    residual = [value - mean for value, mean in zip(values, predicted, strict=True)]
    assert statistics.fmean(each**2 for each in residual) < unit**2 / 4
    assert adapter.generator._surrogate is not None
    assert len(cross_validate(adapter)) == 16
    client.get_best_parameterization()


def test_another_search_space_begins_anew(make_client):
    """What was noted of other columns is not taken for this one's."""
    client = mixed_client(make_client)
    evaluated(client, 8)
    run = client._experiment.trials[7].generator_run
    (metadata,) = run.candidate_metadata_by_arm_signature.values()
    note = metadata[NOTE]["regions"]
    assert note["space"][0][3:] == ["level", "k", "x", "rate"]
    note["space"][0][0] = "other"
    note["strategy"]["regions"][0] |= {"run": 5, "length": 0.01}
    client.get_next_trials(1)
    (region,) = note_of(client)["regions"]
    assert region["run"] == 0 and region["length"] == 0.8


def test_columns_of_choices():
    """From one-hot columns to codes and back."""
    names = ["p_OH_PARAM_0", "p_OH_PARAM_1", "p_OH_PARAM_2", "x"]

    class Space:
        feature_names = names
        bounds = ((0.0, 1.0),) * 3 + ((2.0, 5.0),)
        task_features = fidelity_features = categorical_features = ()
        discrete_choices = MappingProxyType({})
        hierarchical_dependencies = None

    box = EncodedBox.of(Space)
    X = torch.tensor([[0.0, 0, 1, 3.5], [1.0, 0, 0, 2.5]], dtype=torch.float64)
    points: Tensor = box.points(X)
    assert points.tolist() == [[3.5, 2.0], [2.5, 0.0]]
    assert torch.equal(box.rows(points), X)
    Space.fidelity_features = (3,)
    with pytest.raises(UnsupportedError, match="learning curves"):
        EncodedBox.of(Space)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"candidates": [{"x1": 0.0}]}, "thompson_generation_strategy"),
        ({"allow_repeats": True}, "none"),
        ({"optimizer_options": {"num_restarts": 2}}, "none"),
        ({"batch_size": 0}, "batch_size"),
        ({"num_regions": 1.5}, "num_regions"),
        ({"num_initial": 0}, "num_initial"),
        ({"num_candidate": 5}, "num_candidate"),
    ],
)
def test_options_that_are_refused(given, words):
    with pytest.raises(InputDataError, match=words):
        trust_region_generation_strategy(**given)


def test_strategies_are_stored():
    strategy = trust_region_generation_strategy(
        7, batch_size=3, num_regions=2, num_candidates=500, seed=1, name="mine"
    )
    text = json.dumps(object_to_json(strategy))
    loaded = object_from_json(json.loads(text))
    assert loaded == strategy
    for node, other in zip(strategy._nodes, loaded._nodes, strict=True):
        assert repr(node.generator_specs) == repr(other.generator_specs)
