"""The comparison with other CKKS libraries: who takes turns with whom, what is counted, what is written down."""

import ast
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ren_lab as ren
from ren_lab.backends import backend
from ren_lab.ring import RingSpec, find_primes
from ren_lab.schemes.ckks import CKKSParams

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from peers import command, environments, own, plot, report, turns, worker  # noqa: E402
from peers.processes import Worker, WorkerError, once  # noqa: E402
from peers.system import OPERATIONS, OURS, SETTINGS, Setting, expected  # noqa: E402
from peers.systems import ren as ours  # noqa: E402

TRIAL = SETTINGS[10]
_PEERS = [module for name, module in worker.MODULES.items() if name != OURS]


# taking turns


class Fake:
    """Answers as a worker does, with made-up times, and keeps a log that all of them share."""

    def __init__(self, name, log, seconds=0.01, operations=("add", "chain"), broken=None):
        self.name, self.log, self.seconds, self.operations, self.broken = name, log, seconds, operations, broken

    def ask(self, do, **request):
        if do == self.broken:
            raise WorkerError(f"{self.name} can't")
        if do == "set up":
            return {"description": f"this is {self.name}", "operations": list(self.operations)}
        if do == "errors":
            return {"add": [1e-9, 1e-8]}
        self.log.append((request["operation"], self.name, request["repeats"]))
        return {"seconds": [self.seconds] * request["repeats"]}


def _compared(*fakes, rounds=2, seconds=0.03):
    return turns.compare(TRIAL, 1, {fake.name: fake for fake in fakes}, rounds, seconds)


def test_each_round_has_the_opposite_order_of_the_one_before():
    log = []
    _compared(Fake(OURS, log), Fake("A", log), Fake("B", log), rounds=3)
    names = [name for operation, name, _ in log[6:] if operation == "add"]  # the first six only find out how long a call takes
    assert names == [OURS, "A", "B", "B", "A", OURS, OURS, "A", "B"]


def test_systems_alternate_at_every_operation_not_after_all_of_them():
    log = []
    _compared(Fake(OURS, log), Fake("A", log), rounds=1)
    assert [entry[:2] for entry in log[4:]] == [("add", OURS), ("add", "A"), ("chain", OURS), ("chain", "A")]


@pytest.mark.parametrize(("seconds", "repeats"), [(0.01, 3), (0.5, 1), (1e-9, 200)], ids=["short", "longer than a turn", "tiny"])
def test_a_turn_has_as_many_calls_as_fit(seconds, repeats):
    log = []
    found = _compared(Fake(OURS, log, seconds))
    assert [len(turn) for turn in found.turns["add"][OURS]] == [repeats, repeats]


@pytest.mark.parametrize("broken", ["set up", "errors"])
def test_a_peer_that_cannot_be_set_up_is_left_out_with_its_reason(broken):
    found = _compared(Fake(OURS, []), Fake("A", [], broken=broken), Fake("B", []))
    assert list(found.systems) == [OURS, "B"]
    assert found.left_out == {"A": "A can't"}
    assert set(found.turns["add"]) == {OURS, "B"}
    assert "A is left out: A can't" in report.terminal(report.Record([found]))


def test_nothing_is_compared_without_this_package():
    with pytest.raises(WorkerError, match="can't"):
        _compared(Fake(OURS, [], broken="set up"), Fake("A", []))


def test_a_replay_is_compared_with_the_others_chain():
    found = _compared(
        Fake(OURS, [], seconds=0.002, operations=("chain, replayed",)), Fake("A", [], seconds=0.014, operations=("chain",))
    )
    assert found.ratio("chain, replayed", "A").median == pytest.approx(7)
    assert found.ratio("add", "A") is None


_turn = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=5)


@given(st.lists(st.tuples(_turn, _turn), min_size=1, max_size=9))
def test_ratios_are_quartiles_of_each_rounds_ratio_of_medians(rounds):
    ratio = turns.Ratio.of([theirs for theirs, _ in rounds], [mine for _, mine in rounds])
    each = [np.median(theirs) / np.median(mine) for theirs, mine in rounds]
    assert [ratio.low, ratio.median, ratio.high] == pytest.approx(list(np.quantile(each, [0.25, 0.5, 0.75])))


# a worker's process

_NOISY = """
import os, sys, numpy as np
from peers import worker
from peers.system import System

class Noisy(System):
    description = "noisy"
    def __init__(self, setting, values, threads):
        self.values, self.calls = values, 0
        self.operations = {"add": self.add, "quit": lambda: os._exit(3)}
    def add(self):
        self.calls += 1
        os.write(1, b"a library says hello\\n"); print("and so does Python")
        return self.values + self.values[::-1]
    def opened(self, result):
        return result + 0.25
    def count(self):
        return self.calls
    def threads(self):
        return [os.environ["OMP_NUM_THREADS"], os.environ["REN_THREADS"]]

sys.modules["peers.systems.seal"] = sys.modules[__name__]
make = Noisy
worker.main("SEAL")
"""


def _asking(answer):
    return {"set up": {"setting": vars(TRIAL), "threads": 1}}.get(answer, {})


def test_a_worker_answers_line_by_line_whatever_the_library_prints():
    with Worker([sys.executable], f"exec({_NOISY!r})", 3) as process:
        answer = process.ask("set up", **_asking("set up"))
        assert answer == {"description": "noisy", "operations": ["add", "quit"]}
        assert len(process.ask("time", operation="add", repeats=4)["seconds"]) == 4
        assert process.ask("count") == 5  # the first call of a turn is not counted
        assert process.ask("errors") == {"add": pytest.approx([0.25, 0.25])}
        assert process.ask("threads") == ["3", "3"]
        with pytest.raises(WorkerError, match="KeyError: 'fly'"):
            process.ask("time", operation="fly", repeats=1)
        assert process.ask("count") == 6
        with pytest.raises(WorkerError, match="ended: and so does Python|ended: status 3"):
            process.ask("time", operation="quit", repeats=1)


def test_a_worker_that_cannot_start_says_why():
    with Worker([sys.executable], "import nothing_of_this_name", 1) as process:
        with pytest.raises(WorkerError, match="nothing_of_this_name"):
            process.ask("set up", **_asking("set up"))


def test_a_turn_ends_when_processor_time_stands_still(monkeypatch):
    """The clock of a process whose threads spin for 0.2 s after their work."""
    now = [0.0]
    monkeypatch.setattr(worker.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(worker.time, "process_time", lambda: min(now[0], 0.2))
    worker.settle()
    assert 0.2 <= now[0] < 0.3
    monkeypatch.setattr(worker.time, "process_time", lambda: now[0])
    worker.settle()
    assert now[0] < 5  # it does not wait for ever


def test_expected_values_are_those_of_the_plain_vectors():
    values = np.array([0.5, -0.25, 1.0])
    assert expected("rotate", values, 2).tolist() == [-0.25, 1.0, 0.5]
    assert expected("multiply", values, 2).tolist() == [0.5, 0.0625, 0.5]
    assert expected("chain", values, 2).tolist() == [8 * x**4 - 8 * x**2 + 1 for x in values]  # Chebyshev's T4
    with pytest.raises(KeyError):
        expected("keys", values, 2)


_EVERYWHERE = [path for path in (ROOT / "benchmarks" / "peers").glob("**/*.py") if path.stem in ("system", "worker", *_PEERS)]


@pytest.mark.parametrize("path", _EVERYWHERE, ids=lambda path: path.stem)
def test_what_runs_in_a_peers_process_is_python_3_10(path):
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 10))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.partition(".")[0] in ("peers", "ren_lab")} <= {"peers.system"}


# parameters and environments


@pytest.mark.parametrize("log_n", [log_n for log_n in SETTINGS if SETTINGS[log_n].secure])
def test_this_packages_parameters_are_those_of_the_setting(log_n):
    setting = SETTINGS[log_n]
    params = ours.parameters(setting)
    assert (params.n, params.depth, params.log2_scale) == (setting.n, setting.depth, setting.log2_scale)
    assert params.security_bits == 128


def test_the_headline_is_at_the_default_parameters():
    assert ours.parameters(SETTINGS[15]) == CKKSParams.default()


def test_a_setting_that_cannot_be_had_is_refused():
    with pytest.raises(ValueError, match="choose another scale"):
        ours.parameters(Setting(14, 2, 31))


def test_a_named_interpreter_is_the_only_one_that_is_tried(tmp_path):
    missing = str(tmp_path / "python")
    here = environments.Peer("here", "pip", "json")
    assert environments.find(here, {}, None) == (sys.executable, "")
    python, why = environments.find(here, {"here": missing}, None)
    assert python is None and missing in why and "--install" in why


def test_a_peer_that_is_not_there_is_explained():
    python, why = environments.find(environments.Peer("none", "none", "nothing_of_this_name"), {}, None)
    assert python is None and "nothing_of_this_name" in why


@pytest.mark.parametrize("text", ["openfhe", "openfhe=", "lattigo=/bin/python"])
def test_interpreters_are_named_by_peers(text, capsys):
    with pytest.raises(SystemExit):
        command.parser().parse_args(["--python", text])
    assert text.partition("=")[0] in capsys.readouterr().err


# where the time goes

RING = RingSpec(64, find_primes(64, 29, 3))
OTHER = RingSpec(64, find_primes(64, 28, 5))


def _plan(function, *polys):
    jitted = ren.jit(function)
    jitted(*polys)
    return jitted.plans[0], lambda: jitted(*polys)


def _poly(seed):
    return ren.Poly(np.random.default_rng(seed).integers(0, 2**20, RING.n), RING, "python").realize()


def _counts(function, number):
    plan, replay = _plan(function, *map(_poly, range(number)))
    return {kind: part["count"] for kind, part in own.account(plan, replay, 1)["parts"].items()}


@pytest.mark.parametrize(
    ("function", "number", "counts"),
    [
        pytest.param(lambda a, b: (a * b).intt(), 2, {"transforms": 9, "inner and tensor products": 3}, id="product"),
        pytest.param(lambda a, b, c, d: a * b + c * d, 4, {"transforms": 12, "inner and tensor products": 6}, id="sum of products"),
        pytest.param(lambda a: a * 7 + a, 1, {}, id="product by a constant"),
        pytest.param(lambda a: a.to_ring(OTHER), 1, {"conversion products": 3 * (5 + 1)}, id="lift"),
        pytest.param(
            lambda a: a.rescale(RING.moduli[:1]), 1, {"conversion products": 1 * (2 + 1)}, id="division by one of three moduli"
        ),
    ],
)
def test_arithmetic_is_counted_from_the_plan(function, number, counts):
    assert _counts(function, number) == counts


def test_an_account_adds_up_what_it_measured():
    plan, replay = _plan(lambda a, b: (a * b).intt(), _poly(0), _poly(1))
    found = own.account(plan, replay, 2)
    assert found["replay"] > 0 and found["kernels"] == len(plan.kernels)
    assert all(part["seconds"] > 0 for part in found["parts"].values())
    rows = report.account({**found, "log_n": 6, "depth": 1})
    total = sum(part["seconds"] for part in found["parts"].values())
    assert rows[-2] == ["sum", "", "", report.number(1e3 * total)]


def test_the_account_refuses_what_it_does_not_know():
    (draw, *_) = [k for k in ren.Poly.uniform(RING, "python").explain().schedule if k.kind == "random"]
    with pytest.raises(ValueError, match="does not know what RANDOM costs"):
        own.pieces(draw.ast)


@pytest.mark.device("cpu")
def test_overhead_is_what_is_not_inside_the_native_call():
    support = backend("cpu").library.support
    native = support.run_plan
    x, y = (ren.Poly(list(range(seed, 64 + seed)), RING, "cpu").realize() for seed in (0, 1))
    _, replay = _plan(lambda a, b: a * b, x, y)
    found = own.overhead(replay, 3)
    assert found["native"] > 0 and 0 < found["beyond"][0] <= found["beyond"][1]
    assert support.run_plan is native
    _, replay = _plan(lambda a, b: a * b, _poly(0), _poly(1))  # on `python`, where a plan is no native call
    assert own.overhead(replay, 3)["native"] is None


@pytest.mark.device("cpu")
def test_first_use_compiles_once(tmp_path):
    code = (
        "import json, sys; from pathlib import Path; from peers.first_use import measure;"
        "from ren_lab.schemes.ckks import CKKSParams; print(json.dumps(measure(Path(sys.argv[1]), CKKSParams.python_test())))"
    )
    cold, files = once(code, str(tmp_path)), sorted(tmp_path.iterdir())
    warm = once(code, str(tmp_path))
    assert files and sorted(tmp_path.iterdir()) == files
    assert cold["kernels"] == warm["kernels"] > 3
    table = report.first_use({"cold": cold, "warm": warm})
    assert table[0] == ["seconds", "cold", "warm"] and len(table) == 4


# what is written


def _filled(rounds=3):
    """A record as a whole run gives it, with made-up times."""
    rng = np.random.default_rng(0)
    record = report.Record(
        first_use={kind: {"passes": 0.1, "compile": 2.0, "run": 0.1, "kernels": 14} for kind in ("cold", "warm")}
    )
    for log_n in (13, 14, 15):
        for threads in (1, 2):
            names = {name: f"{name} 1.0" for name in worker.MODULES}
            made = turns.Comparison(SETTINGS[log_n], threads, names, {"none": "it is not there"})
            for operation in OPERATIONS:
                some = names if operation != "chain, replayed" else [OURS]
                made.turns[operation] = {name: rng.uniform(0.01, 0.05, (rounds, 2)).tolist() for name in some}
            made.errors = {name: {"add": [1e-9, 2e-8]} for name in names}
            record.comparisons.append(made)
    record.account = {"log_n": 15, "depth": 10, "replay": 0.1, "kernels": 9, "parts": {"transforms": {"count": 4, "seconds": 0.05}}}
    record.overhead = {"native": 0.1, "beyond": [4e-5, 5e-5]}
    return record


def test_a_record_survives_json():
    record = _filled()
    assert report.Record.of(json.loads(json.dumps(record.plain()))) == record


def test_cells_hold_minimum_median_and_the_ratio():
    found = turns.Comparison(TRIAL, 1, {OURS: "", "A": ""})
    found.turns["add"] = {OURS: [[0.001, 0.002, 0.003], [0.002]], "A": [[0.006], [0.010, 0.014]]}
    assert report.times(found) == [
        ["milliseconds", OURS, "A"],
        ["add", "1.00/2.00", "6.00/10.0, ×4.50 [3.75, 5.25]"],
    ]


def test_only_what_is_between_the_markers_is_replaced(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"above\n\n{report.BEGIN}\n\nold\n\n{report.END}\n\nbelow\n", "utf-8")
    for _ in range(2):
        report.write(path, "new")
        assert path.read_text("utf-8") == f"above\n\n{report.BEGIN}\n\nnew\n\n{report.END}\n\nbelow\n"


@pytest.mark.parametrize("text", ["", report.BEGIN, f"{report.END} {report.BEGIN}", f"{report.BEGIN} {report.BEGIN} {report.END}"])
def test_a_page_without_its_markers_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="once each and in this order"):
        report.write(path, "new")
    assert path.read_text("utf-8") == text


def test_the_page_of_benchmarks_has_the_markers():
    text = command.PAGE.read_text("utf-8")
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_a_written_page_has_a_table_for_everything_and_its_picture():
    page = report.page(_filled(), "images/peers.png")
    assert "](images/peers.png)" in page
    headings = [line for line in page.splitlines() if line.startswith("**")]
    assert len(headings) == 6 + 3 + 1 + 1 + 1  # times, errors, account, replay, first use
    for table in page.split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "none is left out: it is not there" in page


def test_the_picture_is_small_and_says_its_finding():
    figure = plot.draw(_filled().comparisons)
    assert "10 steps" in figure.get_suptitle() and "times as long elsewhere (n = 2^15, 2 threads)" in figure.get_suptitle()
    out = io.BytesIO()
    figure.savefig(out, format="png")
    assert len(out.getvalue()) < 150_000
    assert [panel.get_title() for panel in figure.axes] == [
        f"n = 2^{log_n}, {threads}" for threads in ("1 thread", "2 threads") for log_n in (13, 14, 15)
    ]


def test_the_folder_is_a_command():
    shown = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "peers"), "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and "--python NAME=PATH" in shown.stdout


@pytest.mark.device("cpu")
def test_the_command_measures_records_and_writes(tmp_path, monkeypatch, capsys):
    page, picture, kept = tmp_path / "page.md", tmp_path / "images" / "peers.png", tmp_path / "kept.json"
    page.write_text(f"{report.BEGIN}{report.END}", "utf-8")
    picture.parent.mkdir()
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "PICTURE", picture)
    missing = [argument for peer in environments.PEERS for argument in ("--python", f"{peer.package}={tmp_path / 'python'}")]
    quick = ["--log-n", "10", "--threads", "1", "--rounds", "1", "--seconds", "0.001", "--parts", "peers", "--record", str(kept)]
    assert command.main([*quick, *missing]) == 0
    shown = capsys.readouterr().out
    for operation in OPERATIONS:
        assert OPERATIONS[operation].format(depth=TRIAL.depth) in shown
    for peer in environments.PEERS:
        assert f"{peer.name} is left out: " in shown
    measured = json.loads(kept.read_text("utf-8"))["comparisons"][0]
    assert set(measured["turns"]) == set(OPERATIONS)
    assert all(largest < 1e-2 for _, largest in measured["errors"][OURS].values())
    assert command.main(["--from", str(kept), "--write"]) == 0
    assert capsys.readouterr().out == shown
    assert "(images/peers.png)" in page.read_text("utf-8") and picture.stat().st_size > 1000
