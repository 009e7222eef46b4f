"""A saved page in a browser without a network: the same steppers, and nothing is fetched."""

from types import SimpleNamespace

import pytest

import ren_lab as ren
from ren_lab.lens.pass_steps import PassSteps
from ren_lab.lens.records import Failure
from ren_lab.lens.stepper_page import stepper_html, stepper_script, stepper_styles
from ren_lab.lens.theme import style_sheet
from ren_lab.lens.trace import Trace
from ren_lab.ring import find_primes

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def program(n: int = 64):
    """Two outputs with a rotation, a rescaling and shared work."""
    ring = ren.RingSpec(n, find_primes(n, 30, 3))
    x, y = ren.Poly(range(n), ring), ren.Poly([1, 2, 3], ring)
    product = (x * y).rotate(1) + 7
    return product.rescale(ring.moduli[-1:]).to_ring(ring) * x, product


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The page of a realization."""
    first, second = program()
    with ren.trace() as recording:
        first.realize(second)
    path = tmp_path_factory.mktemp("page") / "trace.html"
    recording.realizations[-1].save(path)
    return path


@pytest.fixture
def page(saved, open_page):
    """The page, opened with the network off."""
    opened = open_page(1400, 1000, offline=True)
    opened.asked = []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.goto(saved.as_uri())
    opened.wait_for_selector('[data-stepper="schedule"][data-shown]')
    return opened


def test_steps_and_rewrites_by_keyboard_and_slider(page, tmp_path):
    stepper = page.locator('[data-stepper="pass"]')
    stepper.focus()
    page.keyboard.press("End")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="12|"]')
    stepper.locator('[data-do="slider"]').fill("3")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="3|0"]')
    page.keyboard.press("]")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="3|1"]')
    assert "rewrite 1 of" in stepper.locator('[data-hook="sentence"]').inner_text()
    stepper.locator('[data-do="fold"]').select_option("operation")
    page.wait_for_selector('[data-stepper="pass"][data-shown*="|operation|"]')

    other = page.locator('[data-stepper="schedule"]')
    other.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('[data-stepper="schedule"][data-step="1"]')
    assert other.locator(".v.now").count() == 1
    page.screenshot(path=tmp_path / "page.png")
    assert page.console.errors == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_node_tells_its_details_and_its_history(page):
    stepper = page.locator('[data-stepper="pass"]')
    stepper.locator('[data-do="slider"]').fill("3")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="3|0"]')
    vertex = stepper.locator(".v", has_text="RESCALE").first
    vertex.click()
    page.wait_for_selector('[data-stepper="pass"] [data-hook="card"] table')
    shown = stepper.locator('[data-hook="card"]').inner_text()
    assert "RESCALE" in shown and "History" in shown and "test_steppers_on_a_page.py" in shown
    stepper.focus()
    page.keyboard.press("f")
    page.wait_for_function("document.querySelectorAll('[data-stepper=pass] .v.later').length > 0")
    assert stepper.locator(".v.later").count() < stepper.locator(".v").count()
    assert page.console.errors == []


def test_a_pipeline_without_graphs_is_shown_as_text(open_page, tmp_path):
    def record(number, name, before, after):
        return SimpleNamespace(number=number, name=name, before=before, after=after, rewrites=(), seconds=0.001)

    source = PassSteps([record(1, "tidy", "a = 1\nb = <2>", "a = 1"), record(2, "check", "a = 1", "a = 1")])
    path = tmp_path / "text.html"
    style = f"<style>{style_sheet()}{stepper_styles()}</style>"
    path.write_text(f'<!doctype html><meta charset="utf-8">{style}{stepper_html(source, "p")}{stepper_script()}', "utf-8")
    page = open_page(offline=True)
    page.goto(path.as_uri())
    stepper = page.locator('[data-stepper="pass"]')
    stepper.focus()
    page.keyboard.press("j")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="1|"]')
    assert [line.rstrip() for line in stepper.locator(".picture .line").all_inner_texts()] == ["  a = 1", "− b = <2>"]
    assert page.console.errors == []


def test_where_a_pass_broke_is_shown(open_page, tmp_path):
    whole = program(32)[0].explain()
    graph = whole.passes[4].before
    failure = Failure.of(ArithmeticError("no such boundary"), "pass", 5, "decide_boundaries", graph=graph)
    trace = Trace(whole.graph, whole.options, passes=whole.passes[:4], error=failure)
    trace.save(tmp_path / "broken.html")
    page = open_page(offline=True)
    page.goto((tmp_path / "broken.html").as_uri())
    stepper = page.locator('[data-stepper="pass"]')
    page.wait_for_selector('[data-stepper="pass"][data-shown^="5|"]')  # at once
    assert "no such boundary" in stepper.inner_text()
    assert stepper.locator(".list .alert.here").count() == 1
    assert stepper.locator(".v").count() == len(graph.toposort())
    assert page.console.errors == []


PICTURE = """stepper => {
  const pane = stepper.querySelector(".picture"), svg = pane.querySelector(".own svg");
  const [inner, outer] = [svg.getBoundingClientRect(), pane.getBoundingClientRect()];
  return { scale: inner.width / svg.viewBox.baseVal.width, across: outer.width / svg.viewBox.baseVal.width,
    fits: Math.min(outer.width / svg.viewBox.baseVal.width, outer.height / svg.viewBox.baseVal.height),
    wide: inner.width <= pane.clientWidth, high: inner.height <= pane.clientHeight };
}"""


def test_pictures_fit_from_the_start_and_stay_fitted_from_step_to_step(page):
    stepper = page.locator('[data-stepper="pass"]')
    for step in range(13):
        stepper.locator('[data-do="slider"]').fill(str(step))
        page.wait_for_selector(f'[data-stepper="pass"][data-shown^="{step}|"]')
        seen = stepper.evaluate(PICTURE)
        assert seen["wide"] or seen["across"] < 0.3, (step, seen)
        assert seen["high"] or seen["fits"] < 0.5, (step, seen)
    stepper.locator('[data-do="fit"]').click()  # all of it, however small, in this step and in others
    for step in (12, 11, 6, 0):
        stepper.locator('[data-do="slider"]').fill(str(step))
        page.wait_for_selector(f'[data-stepper="pass"][data-shown^="{step}|"]')
        seen = stepper.evaluate(PICTURE)
        assert seen["wide"] and seen["high"], (step, seen)
    stepper.locator('[data-do="zoom-in"]').click()
    larger = stepper.evaluate(PICTURE)["scale"]
    assert larger == pytest.approx(1.25 * seen["scale"], rel=0.01)
    stepper.locator('[data-do="fit"]').click()
    stepper.locator('[data-do="fit"]').click()
    assert stepper.evaluate(PICTURE)["scale"] == pytest.approx(seen["scale"], rel=0.01)


def test_the_text_form_fills_its_pane_and_no_line_is_cut(page):
    stepper = page.locator('[data-stepper="pass"]')
    for step in (0, 3, 12):
        stepper.locator('[data-do="slider"]').fill(str(step))
        page.wait_for_selector(f'[data-stepper="pass"][data-shown^="{step}|"]')
        text = stepper.locator('[data-hook="text"]')
        sizes = text.evaluate(
            "e => [e.scrollWidth - e.clientWidth, e.clientHeight, e.parentElement.getBoundingClientRect().bottom "
            "- e.getBoundingClientRect().bottom, e.parentElement.scrollHeight - e.parentElement.clientHeight]"
        )
        assert sizes[0] <= 0 and sizes[1] >= 200
        assert 0 <= sizes[2] <= 16 or sizes[3] > 0  # down to the end of the pane, unless that has to be scrolled


def test_a_selected_line_is_scrolled_to(page):
    stepper = page.locator('[data-stepper="pass"]')
    stepper.locator('[data-do="slider"]').fill("11")
    page.wait_for_selector('[data-stepper="pass"][data-shown^="11|"]')
    key = stepper.locator("[data-line]").last.get_attribute("data-line")
    stepper.locator(f'.v[data-key="{key}"]').dispatch_event("click")
    page.wait_for_selector(f'[data-stepper="pass"] [data-card="{key}"]')
    offsets = stepper.locator(".line.sel").evaluate("""e => {
      const [line, text] = [e.getBoundingClientRect(), e.parentElement.getBoundingClientRect()];
      return [line.top - text.top, text.bottom - line.bottom];
    }""")
    assert min(offsets) >= -1
