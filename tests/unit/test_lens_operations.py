"""Levels, scales and precision along a homomorphic program, as data and as a plot."""

import numpy as np
import pytest

import ren_lab as ren
from ren_lab.lens.operations_plot import operations_dict, plot_operations
from ren_lab.schemes.ckks import CKKSParams, encode, encrypt, keygen


@pytest.fixture(scope="module")
def recording():
    with keygen(CKKSParams.python_test()):
        x = encrypt(encode(np.linspace(-1, 1, 8), msg_bound=1.0)).realize()
        with ren.trace() as recording:
            for _ in range(3):
                x = 2 * x * x - 1
            x.realize()
    return recording


def test_a_recording_keeps_the_operations_with_the_users_lines(recording):
    names = [o.name for o in recording.operations]
    assert names.count("multiply") == 3
    assert {o.origin[0].rsplit("/", 1)[-1] for o in recording.operations} == {"test_lens_operations.py"}
    levels = [o.level for o in recording.operations if o.name == "multiply"]
    assert levels == [levels[0], levels[0] - 1, levels[0] - 2]


def test_the_data_says_where_most_precision_goes(recording):
    data = operations_dict(recording.operations)
    assert len(data["operations"]) == len(recording.operations)
    bits = [row["precision_bits"] for row in data["operations"]]
    steps = [b - a for a, b in zip(bits, bits[1:])]
    worst = data["operations"][1 + steps.index(min(steps))]
    assert worst["line"] in data["title"] and f"{bits[-1]:.1f} bits" in data["title"]
    assert [(first, last) for first, last, _ in data["lines"]] == [(0, len(bits) - 1)]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plot_has_an_axis_for_each_quantity(recording, theme):
    figure = recording.plot(theme)
    assert [axis.get_ylabel().partition("\n")[0] for axis in figure.axes] == ["level", "scale", "estimated"]
    for axis, key in zip(figure.axes, ("level", "log2_scale", "precision_bits")):
        assert list(axis.lines[1].get_ydata()) == [getattr(o, key) for o in recording.operations]


def test_nothing_seen_is_said_in_words():
    figure = plot_operations(())
    assert not figure.axes and "No homomorphic operations" in figure.get_suptitle()
