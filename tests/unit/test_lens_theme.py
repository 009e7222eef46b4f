"""Colours, shapes, badges and units."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ren_lab.ir import Op
from ren_lab.lens import theme

THEMES = [theme.LIGHT, theme.DARK]
THEME_IDS = [t.name for t in THEMES]
HUES = ("blue", "orange", "vermillion", "purple", "grey", "green", "amber")


@pytest.mark.parametrize(
    ("a", "b", "ratio"),
    [("#000000", "#FFFFFF", 21.0), ("#FFFFFF", "#FFFFFF", 1.0), ("#767676", "#FFFFFF", 4.54), ("#FF0000", "#FFFFFF", 4.0)],
)
def test_contrast_has_the_values_that_are_published(a, b, ratio):
    assert theme.contrast(a, b) == pytest.approx(ratio, abs=0.005)
    assert theme.contrast(b, a) == theme.contrast(a, b)


@pytest.mark.parametrize("look", THEMES, ids=THEME_IDS)
def test_text_is_readable_on_the_background_and_on_every_tint(look):
    for name in ("background", *(f"{hue}_tint" for hue in HUES)):
        assert theme.contrast(look["ink"], look[name]) >= 4.5, name
    assert theme.contrast(look["muted"], look["background"]) >= 4.5


@pytest.mark.parametrize("look", THEMES, ids=THEME_IDS)
def test_badges_are_readable(look):
    for mark, style in theme.MARKS.items():
        assert theme.contrast(look.text_on(style.colour), look[style.colour]) >= 4.5, mark


@pytest.mark.parametrize("look", THEMES, ids=THEME_IDS)
def test_colours_are_told_apart(look):
    assert len(set(look.colours.values())) == len(look.colours)
    assert set(look.colours) == set(theme.LIGHT.colours)


def test_light_hues_are_those_of_okabe_and_ito():
    wanted = {"blue": "#0072B2", "orange": "#E69F00", "vermillion": "#D55E00", "purple": "#CC79A7", "green": "#009E73"}
    assert {hue: theme.LIGHT[hue] for hue in wanted} == wanted
    assert theme.LIGHT["background"] == "#FFFFFF" and theme.DARK["background"] == "#111418"


@pytest.mark.parametrize("hue", HUES)
def test_dark_hues_are_lighter(hue):
    assert theme.contrast(theme.DARK[hue], "#000000") > theme.contrast(theme.LIGHT[hue], "#000000")


def test_names_that_do_not_exist_are_named():
    with pytest.raises(KeyError, match="no colour 'pink'"):
        theme.LIGHT["pink"]
    with pytest.raises(ValueError, match="no theme 'sepia'.*'light' or 'dark'"):
        theme.theme("sepia")
    with pytest.raises(ValueError, match="no ring 4.*0 to 3"):
        theme.ring_colour(4)
    with pytest.raises(ValueError, match="'red' is not a colour"):
        theme.contrast("red", "#000000")


def test_rings_have_their_colours_in_order():
    assert [theme.ring_colour(ring) for ring in range(4)] == ["blue", "orange", "green", "purple"]


@pytest.mark.parametrize(
    ("op", "domain", "colour", "shape", "border"),
    [
        ("ADD", "COEFF", "blue", "box", "solid"), ("ADD", "NTT", "orange", "box", "double"),
        ("NTT", "NTT", "vermillion", "hexagon", "solid"),
        ("INTT", "COEFF", "vermillion", "hexagon", "solid"), ("TO_RING", "COEFF", "purple", "trapezium", "solid"),
        ("RESCALE", "NTT", "purple", "trapezium", "solid"), ("BUFFER_VIEW", None, "purple", "trapezium", "dashed"),
        ("BUFFER", None, "grey", "cylinder", "solid"), ("CONST", None, "grey", "plaintext", "none"),
        ("RANDOM", None, "grey", "diamond", "solid"),
        ("KERNEL", None, "green", "box", "thick"), ("STORE", None, "green", "box", "thick"),
    ],
    ids=lambda value: str(value),
)  # fmt: skip
def test_each_meaning_has_a_colour_and_a_second_carrier(op, domain, colour, shape, border):
    style = theme.ROLES[theme.role_of(op, domain)]
    assert (style.colour, style.shape, style.border) == (colour, shape, border)


def test_every_operation_has_a_role_and_no_two_roles_look_the_same_without_colour():
    assert all(theme.role_of(op.name, domain) in theme.ROLES for op in Op for domain in ("COEFF", "NTT", None))
    coloured = [style for style in theme.ROLES.values() if style.colour != "muted"]
    by_form = {}
    for style in coloured:
        by_form.setdefault((style.shape, style.border), set()).add(style.colour)
    assert all(len(colours) == 1 for colours in by_form.values())


def test_changes_have_badges_of_their_own():
    assert {mark: (style.badge, style.struck) for mark, style in theme.MARKS.items()} == {
        "added": ("+", False), "removed": ("−", True), "changed": ("~", False),
    }  # fmt: skip


# markup


def test_a_style_sheet_gives_each_colour_in_both_themes():
    sheet = theme.style_sheet(".scope")
    for name, value in theme.LIGHT.colours.items():
        variable = f"--ren-{name.replace('_', '-')}:"
        assert f"{variable}{value};" in sheet and f"{variable}{theme.DARK[name]};" in sheet
    assert sheet.index("prefers-color-scheme: dark") < sheet.index('[data-jp-theme-light="true"] .scope')
    assert "url(" not in sheet and "@import" not in sheet


def test_a_drawing_takes_its_colours_from_the_style_sheet():
    drawing = '<path fill="none" stroke="#0072b2"/><text fill="#1A1D21">fill="#0072B2" of #0072b2</text><path fill="#123456"/>'
    got = theme.with_variables(drawing)
    assert '<path fill="none" stroke="var(--ren-blue,#0072B2)"/>' in got
    assert '<text fill="var(--ren-ink,#1A1D21)">' in got
    assert '<path fill="#123456"/>' in got and "of #0072b2" in got


# units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (1.5e-9, "1.5 ns"), (0.00123, "1.23 ms"), (0.0009996, "1 ms"), (999e-6, "999 µs"), (12.34, "12.3 s"),
        (90, "90 s"), (1500, "25 min"), (-0.002, "−2 ms"), (7200000, "2,000 h"),
    ],
)  # fmt: skip
def test_seconds(seconds, text):
    assert theme.format_seconds(seconds) == text


@given(st.floats(1e-9, 3.5e6))
def test_seconds_are_given_in_the_unit_of_1_to_999_and_to_three_digits(seconds):
    number, unit = theme.format_seconds(seconds).split()
    size = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}[unit]
    assert 1 <= float(number.replace(",", "")) <= 999
    assert float(number.replace(",", "")) * size == pytest.approx(seconds, rel=0.0051)


@given(st.integers(0, 2**49))
def test_bytes_are_in_binary_units(nbytes):
    number, unit = theme.format_bytes(nbytes).split()
    power = ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert float(number) * 1024**power == pytest.approx(nbytes, rel=0.0051)
    assert float(number) < 1024 and (float(number) >= 1 or nbytes == 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, "node"), "1 node"), ((2, "node"), "2 nodes"), ((0, "node"), "0 nodes"), ((12345,), "12,345"),
        ((2, "entry", "entries"), "2 entries"),
    ],
)  # fmt: skip
def test_counts(arguments, text):
    assert theme.format_count(*arguments) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0 %"), (0.0421, "4 %"), (0.0042, "0.4 %"), (1e-9, "0.1 %"), (0.25, "25 %")])
def test_shares(share, text):
    assert theme.format_share(share) == text


@pytest.mark.parametrize(
    ("file", "text"),
    [("/home/someone/program.py", "program.py:31"), ("program.py", "program.py:31"), ("/tmp/ipykernel_12/3456789.py", "cell:31"),
     ("<stdin>", "<stdin>:31")],
)  # fmt: skip
def test_source_lines_name_no_folders_and_no_hashes(file, text):
    assert theme.format_origin((file, 31)) == text


def test_nothing_heavy_is_imported():
    modules = ", ".join(f"ren_lab.lens.{name}" for name in ("theme", "dot", "graph_view", "schedule_view", "memory_plot"))
    code = f"import sys, {modules}\nprint({{'matplotlib', 'graphviz', 'IPython', 'ipywidgets'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"set\(\)\s*", done.stdout)
