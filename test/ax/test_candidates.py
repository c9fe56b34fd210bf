"""Only arms of the user's table are proposed, exactly as they are there."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.exceptions.core import SearchSpaceExhausted
from ax_problems import MIXED, mixed
from botorch.exceptions import InputDataError
from refusals import refused

from botorch_sparse.ax import (
    ArmTable,
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
    thompson_generation_strategy,
)


def rows(n: int) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [
        {
            "kind": rng.choice("abc"),
            "level": rng.choice([1, 2, 4]),
            "k": rng.randint(1, 8),
            "x": rng.random(),
            "rate": 10 ** rng.uniform(-4, 0),
        }
        for _ in range(n)
    ]


def measured(table: list[dict[str, Any]]) -> list[Any]:
    """Trials at rows of a table, whose feedback is noisy."""
    rng = random.Random(1)
    return [(row, {"f": mixed(**row) + rng.gauss(0.0, 1.0)}) for row in table]


def key(parameters: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(parameters[name] for name in ("kind", "level", "k", "x", "rate"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("factory", "source"),
    [
        (bbkb_generation_strategy, "rows"),
        (bbkb_generation_strategy, "frame"),
        (sparse_generation_strategy, "file"),
    ],
)
def test_all_arms_are_rows_of_the_table(
    factory, source, make_client, evaluate, tmp_path
):
    table = rows(60)
    candidates: Any = table
    if source != "rows":
        candidates = pd.DataFrame(table)
    if source == "file":
        candidates.to_csv(tmp_path / "table.csv", index=False)
        candidates = tmp_path / "table.csv"
    strategy = factory(6, candidates=candidates, seed=0)
    client = make_client(strategy, MIXED)
    asked = evaluate(client, 8, mixed, noise=0.05)
    known = {key(row): row for row in table}
    for parameters in asked:
        row = known[key(parameters)]
        assert {name: type(v) for name, v in parameters.items()} == {
            name: type(v) for name, v in row.items()
        }
    assert len({key(parameters) for parameters in asked[:6]}) == 6
    best = max(mixed(**parameters) for parameters in asked[6:])
    assert best > sorted(mixed(**row) for row in table)[-15]


def test_batches_and_pending_trials(make_client, attach):
    table = rows(40)
    strategy = bbkb_generation_strategy(
        5, candidates=table, allow_repeats=False, seed=0
    )
    client = make_client(strategy, MIXED)
    attach(client, measured(table[:8]))
    pending = client.get_next_trials(3)
    (runs,) = strategy.gen(client._experiment, n=10, num_trials=1)
    known = {key(row) for row in table}
    arms = [key(arm.parameters) for arm in runs[0].arms]
    assert set(arms) <= known and len(set(arms)) == len(arms)
    taken = {key(t.arm.parameters) for t in client._experiment.trials.values()}
    assert len(pending) == 3 and not taken & set(arms)


@pytest.mark.parametrize(("threshold", "size"), [(1e6, 12), (1.0, 1), (1e6, 50)])
def test_batches_without_repeats_are_as_large_as_the_rule_allows(
    threshold, size, make_client, attach
):
    """Rows of the table that are there twice are one arm."""
    table = [*rows(20), *rows(6)]
    strategy = bbkb_generation_strategy(
        5, candidates=table, allow_repeats=False, ratio_threshold=threshold, seed=0
    )
    client = make_client(strategy, MIXED)
    known = table[:6]
    attach(client, measured(known))
    (runs,) = strategy.gen(client._experiment, n=size, num_trials=1)
    arms = [key(arm.parameters) for arm in runs[0].arms]
    assert len(set(arms)) == len(arms) == min(size, 20 - 6)
    assert not set(arms) & {key(parameters) for parameters in known}
    acquisition = strategy.adapter.generator._acquisition
    assert acquisition.acqf.X_pending is None


def test_rows_where_sample_paths_are_best(make_client, attach):
    """Exactly as they are in the table, each once, and good ones."""
    table = rows(60)
    strategy = thompson_generation_strategy(
        5, candidates=[*table, *table[:20]], allow_repeats=False, seed=0
    )
    client = make_client(strategy, MIXED)
    attach(client, [(row, {"f": mixed(**row)}) for row in table[::3]])
    ((run,),) = strategy.gen(client._experiment, n=10, num_trials=1)
    known = {key(row): row for row in table}
    arms = [arm.parameters for arm in run.arms]
    assert len({key(arm) for arm in arms}) == len(arms) == 10
    for arm in arms:
        row = known.pop(key(arm))
        assert {name: type(v) for name, v in arm.items()} == {
            name: type(v) for name, v in row.items()
        }
    left = sorted(mixed(**row) for i, row in enumerate(table) if i % 3)
    assert sum(mixed(**arm) for arm in arms) / 10 > left[-10]


def test_without_repeats_the_table_runs_out(make_client, evaluate):
    table = rows(6)
    strategy = sparse_generation_strategy(
        3, candidates=table, allow_repeats=False, seed=0
    )
    client = make_client(strategy, MIXED)
    asked = evaluate(client, 6, mixed, noise=0.0)
    assert {key(p) for p in asked} == {key(row) for row in table}
    with pytest.raises(SearchSpaceExhausted, match="allow_repeats=True"):
        client.get_next_trials(1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "factory",
    [
        bbkb_generation_strategy,
        gssbo_generation_strategy,
        sparse_generation_strategy,
        thompson_generation_strategy,
    ],
)
def test_more_trials_than_rows_that_are_left(factory, make_client, evaluate):
    """Ax keeps none of the trials of such a call; the message says what to ask for."""
    strategy = factory(4, candidates=rows(7), allow_repeats=False, seed=0)
    client = make_client(strategy, MIXED)
    evaluate(client, 6, mixed)
    said = r"All 7 .* 6 were evaluated, and 1 .* in this call.* max_trials=1"
    with pytest.raises(SearchSpaceExhausted, match=said):
        client.get_next_trials(max_trials=2)
    assert len(client.get_next_trials(max_trials=1)) == 1


def test_no_row_satisfies_the_constraints(make_client, attach):
    strategy = sparse_generation_strategy(2, candidates=rows(9), seed=0)
    client = make_client(strategy, MIXED)
    attach(client, measured(rows(4)))
    with pytest.raises(SearchSpaceExhausted, match=r"No candidate .* fixed_parameters"):
        client.get_next_trials(1, {"x": 0.5})


def test_fixed_parameters_restrict_the_table(make_client, attach):
    client = make_client(
        sparse_generation_strategy(4, candidates=rows(40), seed=0), MIXED
    )
    attach(client, measured(rows(6)))
    (parameters,) = client.get_next_trials(1, {"kind": "c"}).values()
    assert parameters["kind"] == "c"


@pytest.mark.slow
def test_the_table_is_saved_once(make_client, evaluate, tmp_path):
    """With the strategy, not with each of its trials; a file by its path."""
    table = rows(30)
    pd.DataFrame(table).to_csv(tmp_path / "table.csv", index=False)
    # Ax saves the generators of two nodes, each twice.
    for candidates, count in ((table, 4), (tmp_path / "table.csv", 0)):
        strategy = sparse_generation_strategy(3, candidates=candidates, seed=0)
        client = make_client(strategy, MIXED)
        evaluate(client, 4, mixed)
        client.save_to_json_file(str(tmp_path / "saved.json"))
        text = (tmp_path / "saved.json").read_text()
        trials = client._experiment.trials.values()
        used = {trial.arm.parameters["x"] for trial in trials}
        unused = next(row for row in table if row["x"] not in used)
        assert text.count(json.dumps(unused["x"])) == count
        loaded = Client.load_from_json_file(str(tmp_path / "saved.json"))
        assert loaded.get_next_trials(1) == client.get_next_trials(1)


def test_tables_that_cannot_work(make_client, attach):
    outside = [*rows(9), rows(1)[0] | {"x": 1.5}]
    lacking = [{"x": 0.1}, {"x": 0.4}]
    for table, message in (
        (outside, "1 of 10 candidates outside"),
        (lacking, r"lacks the parameters \['kind'"),
    ):
        strategy = sparse_generation_strategy(2, candidates=table, seed=0)
        client = make_client(strategy, MIXED)
        attach(client, measured(rows(4)))
        refused(message, client.get_next_trials, 1)


TYPED = [
    ChoiceParameterConfig(
        name="code", values=["1", "2", "10"], parameter_type="str", is_ordered=False
    ),
    ChoiceParameterConfig(
        name="salt", values=["NA", "K", "no"], parameter_type="str", is_ordered=False
    ),
    ChoiceParameterConfig(
        name="flag", values=[True, False], parameter_type="bool", is_ordered=True
    ),
    RangeParameterConfig(name="count", bounds=(1, 9), parameter_type="int"),
    RangeParameterConfig(name="dose", bounds=(0.0, 2.0), parameter_type="float"),
]
TYPED_ROWS = [
    {"code": code, "salt": salt, "flag": flag, "count": count, "dose": count / 7}
    for count, (code, salt, flag) in enumerate(
        itertools.product(["1", "2"], ["NA", "K", "no"], [True, False]), start=1
    )
    if count < 10
]


@pytest.mark.parametrize("source", ["rows", "file"])
def test_types_of_columns_are_those_of_the_search_space(source, make_client, tmp_path):
    """Text that looks like numbers or like missing values stays text."""
    candidates: Any = TYPED_ROWS
    if source == "file":
        candidates = tmp_path / "table.csv"
        # What is no parameter is left alone, be it empty.
        pd.DataFrame(TYPED_ROWS).assign(note="").to_csv(candidates, index=False)
    strategy = sparse_generation_strategy(
        4, candidates=candidates, allow_repeats=False, seed=0
    )
    client, asked = make_client(strategy, TYPED), []
    for _ in range(5):
        ((index, parameters),) = client.get_next_trials(1).items()
        client.complete_trial(index, raw_data={"f": parameters["dose"]})
        asked.append(parameters)
    assert all(parameters in TYPED_ROWS for parameters in asked)
    for parameters in asked:
        types = {name: type(value) for name, value in parameters.items()}
        assert types == {name: type(value) for name, value in TYPED_ROWS[0].items()}
    assert len({parameters["count"] for parameters in asked}) == 5


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("count", "NA", "'count' is not all of type int.*NA"),
        ("count", "1.5", "'1.5' is no integer"),
        ("dose", "nan", "'nan' is not finite"),
        ("dose", "few", "'dose' is not all of type float.*few"),
        ("flag", "maybe", "'maybe' is none of true, 1, false, 0"),
        ("salt", "Na", "1 of 9 candidates outside.*'Na'"),
        ("salt", "", "1 of 9 candidates outside.*''"),
        ("dose", "", "'dose' is not all of type float"),
    ],
)
def test_fields_that_do_not_fit(column, text, message, make_client, tmp_path):
    """Said before the first trial."""
    path = tmp_path / "table.csv"
    frame = pd.DataFrame(TYPED_ROWS).astype(str)
    frame.loc[4, column] = text
    frame.to_csv(path, index=False)
    with pytest.raises(InputDataError, match=message):
        strategy = sparse_generation_strategy(3, candidates=path, seed=0)
        make_client(strategy, TYPED).get_next_trials(1)


def test_whole_numbers_may_be_written_as_fractions_and_fractions_as_whole(tmp_path):
    path = tmp_path / "table.csv"
    frame = pd.DataFrame(TYPED_ROWS).assign(count=lambda t: t["count"] / 1.0, dose=1)
    frame.to_csv(path, index=False)
    client = Client()
    client.configure_experiment(name="test", parameters=TYPED)
    typed = ArmTable.of(path).in_space(client._experiment.search_space)
    assert typed["count"].tolist() == [row["count"] for row in TYPED_ROWS]
    assert typed["count"].dtype == int and typed["dose"].dtype == float


def test_representation():
    assert repr(ArmTable.of(rows(3))).startswith("ArmTable(3 rows of kind,")
    assert ArmTable.of(rows(3)) == ArmTable.of(pd.DataFrame(rows(3)))


def saved_with_a_file(make_client: Any, folder: Path) -> Path:
    """The file of candidates of a strategy that was saved beside it."""
    path = folder / "table.csv"
    pd.DataFrame(rows(9)).to_csv(path, index=False)
    strategy = sparse_generation_strategy(2, candidates=path, seed=0)
    client = make_client(strategy, MIXED)
    client.save_to_json_file(str(folder / "saved.json"))
    return path


def test_a_file_may_move_with_its_strategy(make_client, tmp_path, monkeypatch):
    """Its name in the working directory is enough, if the content is the same."""
    path = saved_with_a_file(make_client, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere" / path.name)
    monkeypatch.chdir(tmp_path / "elsewhere")
    loaded = Client.load_from_json_file(str(tmp_path / "saved.json"))
    (parameters,) = loaded.get_next_trials(1).values()
    assert key(parameters) in {key(row) for row in rows(9)}
    monkeypatch.chdir(tmp_path)
    loaded = Client.load_from_json_file(str(tmp_path / "saved.json"))
    refused(r"table\.csv.*cannot be read", loaded.get_next_trials, 1)


def test_a_file_that_was_replaced_is_refused(make_client, tmp_path):
    path = saved_with_a_file(make_client, tmp_path)
    pd.DataFrame(rows(9)[::-1]).to_csv(path, index=False)
    loaded = Client.load_from_json_file(str(tmp_path / "saved.json"))
    refused("is not the one that the strategy was", loaded.get_next_trials, 1)


def test_an_address_in_a_saved_strategy_is_not_fetched(
    make_client, tmp_path, monkeypatch
):
    def fetch(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"fetched {args}")

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    path = saved_with_a_file(make_client, tmp_path)
    address = "http://localhost:9/table.csv"
    saved = tmp_path / "saved.json"
    saved.write_text(saved.read_text().replace(str(path), address))
    with pytest.raises(InputDataError, match="must be downloaded"):
        Client.load_from_json_file(str(saved)).get_next_trials(1)
    refused("must be downloaded", ArmTable.of, address)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zip"])
def test_a_compressed_file(suffix, tmp_path):
    path = tmp_path / f"table.csv{suffix}"
    pd.DataFrame(rows(3)).to_csv(path, index=False)
    written = {name: [str(row[name]) for row in rows(3)] for name in rows(1)[0]}
    assert ArmTable.of(path).frame.to_dict("list") == written
    assert len(ArmTable.of(ArmTable(path=str(path)))) == 3


def test_a_file_is_read_as_it_is_written(tmp_path):
    """Quotes, lines within cells, other ends of lines, and the mark of Excel."""
    path = tmp_path / "table.csv"
    path.write_bytes(b'\xef\xbb\xbfx,"a, ""b"""\r\n1,"two\nlines"\r\n\r\n2, c \r\n')
    frame = ArmTable.of(path).frame
    assert frame.to_dict("list") == {"x": ["1", "2"], 'a, "b"': ["two\nlines", " c "]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", r"0 candidates.*empty\.csv"),
        ("header.csv", b"x,y\n", r"0 candidates.*header\.csv"),
        ("latin.csv", b"x\n\xff\xfe\n", r"latin\.csv.*cannot be read.*utf-8"),
        ("none.csv.zip", b"x\n1\n", r"none\.csv\.zip.*cannot be read.*zip"),
        ("none.csv.gz", b"x\n1\n", r"none\.csv\.gz.*cannot be read.*gzip"),
        ("none.csv.xz", b"x\n1\n", r"none\.csv\.xz.*cannot be read"),
        ("none.csv.bz2", b"x\n1\n", r"none\.csv\.bz2.*cannot be read"),
        ("quote.csv", b'x,y\n1,"2\n', r"quote\.csv.*cannot be read.*EOF inside string"),
        ("long.csv", b"x,y\n1,2\n3,4,5\n", r"long\.csv.*line 3, saw 3"),
        ("longer.csv", b"x,y\n1,2,3\n4,5,6\n", r"longer\.csv.*line 2, saw 3"),
        ("twice.csv", b"x,x\n1,2\n", r"twice\.csv repeats the column names \['x'\]"),
    ],
)
def test_a_file_that_is_no_table(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    refused(message, ArmTable.of, tmp_path / name)


def test_numbers_of_numpy_are_numbers():
    values = [np.int64(1), np.float32(0.5), np.True_, 2]
    table = ArmTable.of(pd.DataFrame({"x": values}, dtype=object))
    assert table.frame["x"].tolist() == [1, 0.5, True, 2]


@pytest.mark.slow
def test_a_hundred_thousand_rows(make_client, evaluate):
    table = pd.DataFrame(rows(100_000))
    client = make_client(bbkb_generation_strategy(10, candidates=table, seed=0), MIXED)
    asked = evaluate(client, 20, mixed, noise=0.05)
    known = {key(row) for row in table.to_dict("records")}
    assert all(key(parameters) in known for parameters in asked)
