"""A real JupyterLab in a real browser: steppers are stepped by keyboard, slider and kernel; what is selected is read back."""

import json

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTEBOOK = "00_map.ipynb"
IDLE = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
# Runs code in the notebook's kernel and gives what it prints.
ASK_KERNEL = """
async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code, store_history: false });
  let told = "";
  future.onIOPub = (message) => {
    if (message.header.msg_type === "stream") told += message.content.text;
    if (message.header.msg_type === "error") told += message.content.ename + ": " + message.content.evalue;
  };
  await future.done;
  return told;
}
"""
# What is drawn over what it should not be over, or sticks out of its box, among the parts of a stepper.
OVERLAPS = """
(root) => {
  const boxes = [...root.querySelectorAll(":scope > p, :scope > .tools, :scope > .panes")];
  const parts = boxes.map((e) => [e.className, e.getBoundingClientRect()]);
  const found = [];
  for (let i = 1; i < parts.length; i++)
    if (parts[i][1].top < parts[i - 1][1].bottom - 1) found.push(`${parts[i][0]} over ${parts[i - 1][0]}`);
  for (const e of root.querySelectorAll(".tools > *, .panes > *")) {
    const r = e.getBoundingClientRect(), b = root.getBoundingClientRect();
    if (r.right > b.right + 1 || r.left < b.left - 1) found.push(`${e.className || e.tagName} sticks out`);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Where screenshots are kept."""
    return tmp_path_factory.mktemp("screenshots")


@pytest.fixture(scope="module")
def page(lab, browser, watch):
    """The map, opened in the lab with all its cells run; the tests share it and bring it into the state that they need."""
    with browser.new_context(viewport={"width": 1400, "height": 1700}) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.console = watch(page)
        page.goto(lab.url(NOTEBOOK), wait_until="domcontentloaded")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function(IDLE)
        page.evaluate("window.jupyterapp.commands.execute('application:set-mode', { mode: 'single-document' })")
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        for kind in ("pass", "schedule", "ring"):
            page.wait_for_selector(f'[data-stepper="{kind}"][data-shown]', state="attached")
        page.wait_for_function(IDLE)
        yield page


def ask(page, code: str) -> str:
    """What some code prints in the notebook's kernel."""
    return page.evaluate(ASK_KERNEL, code).strip()


def at(stepper, step: int, rewrite: int = 0) -> None:
    """Wait until a stepper shows a state."""
    stepper.page.wait_for_function(
        "([root, start]) => (root.dataset.shown || '').startsWith(start)", arg=[stepper.element_handle(), f"{step}|{rewrite}|"]
    )


def test_steppers_follow_keyboard_slider_and_kernel(page, artifacts):
    for kind, name in (("pass", "passes"), ("schedule", "schedule"), ("ring", "player")):
        stepper = page.locator(f'[data-stepper="{kind}"]')
        stepper.scroll_into_view_if_needed()
        stepper.focus()
        page.keyboard.press("Home")
        at(stepper, 0)
        last = int(stepper.locator('[data-do="slider"]').get_attribute("max"))

        page.keyboard.press("j")
        page.wait_for_function("(root) => +root.dataset.step > 0", arg=stepper.element_handle())
        first = int(stepper.get_attribute("data-step"))
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"(root) => +root.dataset.step > {first}", arg=stepper.element_handle())
        page.keyboard.press("k")
        at(stepper, first)
        page.keyboard.press("End")
        at(stepper, last)
        assert ask(page, f"print({name}.step)") == str(last)

        stepper.locator('[data-do="slider"]').fill("3")
        at(stepper, 3)
        assert ask(page, f"print({name}.step)") == "3"
        told = stepper.locator('[data-hook="sentence"]').inner_text()
        assert ask(page, f"print({name}.sentence)") == told

        ask(page, f"{name}.step = 2")
        at(stepper, 2)
        assert stepper.locator('[aria-selected="true"]').count() == 1
        stepper.screenshot(path=artifacts / f"{kind}.png")
    # the notebook did not take the keys for its own
    assert page.locator(".jp-mod-editMode").count() == 0
    assert page.console.errors == []


def test_a_selected_node_is_known_in_the_kernel_and_keeps_its_place(page, artifacts):
    stepper = page.locator('[data-stepper="pass"]')
    stepper.scroll_into_view_if_needed()
    ask(page, "passes.step = 3; passes.selected = ''")
    at(stepper, 3)
    vertex = stepper.locator(".v", has_text="RESCALE").first
    vertex.click()
    key = vertex.get_attribute("data-key")
    page.wait_for_selector('[data-stepper="pass"] [data-hook="card"] table')
    details = json.loads(ask(page, "import json; print(json.dumps(passes.details()))"))
    assert ask(page, "print(passes.selected)") == key
    about = next(rows for title, rows in details.items() if title.startswith("RESCALE"))
    assert about["operation"] == "RESCALE" and about["shape"] == "2 × 2048" and about["lines"]
    shown = stepper.locator('[data-hook="card"]').inner_text()
    assert all(str(value) in shown for value in about.values())
    # the text form has the same line selected
    assert "RESCALE" in stepper.locator('[data-hook="text"] .sel').inner_text()

    place = vertex.get_attribute("transform")
    stepper.focus()
    page.keyboard.press("j")
    page.wait_for_function(
        "(root) => +root.dataset.step > 3 && root.dataset.shown.startsWith(root.dataset.step)", arg=stepper.element_handle()
    )
    assert stepper.locator(f'.v.sel[data-key="{key}"]').get_attribute("transform") == place

    # a line of the text selects the node
    line = stepper.locator('[data-hook="text"] [data-line]').nth(2)
    line.click()
    page.wait_for_function("(root) => root.querySelector('.line.sel')", arg=stepper.element_handle())
    assert ask(page, "print(passes.selected)") == line.get_attribute("data-line")
    stepper.screenshot(path=artifacts / "selected.png")
    assert page.console.errors == []


def test_rewrites_search_fold_focus_and_play(page, artifacts):
    stepper = page.locator('[data-stepper="pass"]')
    stepper.scroll_into_view_if_needed()
    ask(page, "passes.step = 3; passes.selected = ''")
    at(stepper, 3)
    stepper.focus()
    page.keyboard.press("]")
    at(stepper, 3, 1)
    page.keyboard.press("]")
    at(stepper, 3, 2)
    assert "rewrite 2 of" in stepper.locator('[data-hook="sentence"]').inner_text()
    page.keyboard.press("[")
    at(stepper, 3, 1)
    assert ask(page, "print(passes.rewrite)") == "1"
    stepper.screenshot(path=artifacts / "rewrite.png")
    ask(page, "passes.rewrite = 0")
    at(stepper, 3)

    page.keyboard.press("/")
    page.keyboard.type("ntt")
    page.wait_for_function("(root) => +root.dataset.hits > 0", arg=stepper.element_handle())
    assert int(stepper.get_attribute("data-hits")) == int(ask(page, "print(len(passes.find('ntt')))"))
    page.keyboard.press("Enter")
    page.wait_for_function("(root) => root.querySelector('.v.sel')", arg=stepper.element_handle())
    assert ask(page, "print(passes.selected in passes.find('ntt'))") == "True"
    page.keyboard.press("Escape")

    whole = stepper.locator(".v").count()
    page.keyboard.press("f")
    page.wait_for_function(f"(root) => root.querySelectorAll('.v').length < {whole}", arg=stepper.element_handle())
    assert ask(page, "print(passes.focus == passes.selected != '')") == "True"
    page.keyboard.press("f")
    page.wait_for_function(f"(root) => root.querySelectorAll('.v').length === {whole}", arg=stepper.element_handle())

    stepper.locator('[data-do="fold"]').select_option("operation")
    page.wait_for_function(f"(root) => root.querySelectorAll('.v').length < {whole}", arg=stepper.element_handle())
    assert ask(page, "print(passes.fold)") == "operation"
    ask(page, "passes.fold = ''; passes.interval = 60; passes.step = 0")
    at(stepper, 0)
    stepper.locator('[data-do="play"]').click()
    last = stepper.locator('[data-do="slider"]').get_attribute("max")
    at(stepper, int(last))
    page.wait_for_function(
        "(root) => root.querySelector('[data-do=play]').getAttribute('aria-pressed') === 'false'", arg=stepper.element_handle()
    )
    assert page.console.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (900, "light"), (900, "dark")], ids=lambda value: str(value))
def test_nothing_overlaps_or_sticks_out(page, artifacts, width, scheme):
    theme = {"dark": "JupyterLab Dark", "light": "JupyterLab Light"}[scheme]
    page.set_viewport_size({"width": width, "height": 1700})
    page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{ theme: '{theme}' }})")
    page.wait_for_selector(f'[data-jp-theme-name="{theme}"]', state="attached")
    ask(page, "passes.fold = ''; passes.focus = ''; passes.selected = passes.search = ''")
    for kind, step in (("pass", 5), ("schedule", 4), ("ring", 12)):
        stepper = page.locator(f'[data-stepper="{kind}"]')
        stepper.scroll_into_view_if_needed()
        stepper.locator('[data-do="slider"]').fill(str(step))
        at(stepper, step)
        assert stepper.evaluate(OVERLAPS) == []
        stepper.screenshot(path=artifacts / f"{kind}-{width}-{scheme}.png")
    assert page.console.errors == []
