"""A headless Chromium, and a JupyterLab for it to look at; both are stopped when the tests are over."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
INSTALL = "install it with `apt-get install chromium` (or `brew install chromium`), and `pip install playwright`"


@pytest.fixture(scope="session")
def browser():
    """A browser to open pages in."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium on the PATH; {INSTALL}")
    playwright = pytest.importorskip("playwright.sync_api", reason=f"no playwright; {INSTALL}")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that is running: its address, token and the folder that it serves."""

    address: str
    token: str
    folder: Path

    def url(self, notebook: str) -> str:
        return f"{self.address}/lab/tree/{notebook}?token={self.token}&reset"


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """A JupyterLab with settings of its own, serving a copy of the notebooks."""
    pytest.importorskip("jupyterlab", reason="needs JupyterLab: pip install 'ren-lab[lab]'")
    home = tmp_path_factory.mktemp("lab")
    folder = home / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    (home / "config" / "labconfig").mkdir(parents=True)
    silent = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (home / "config" / "labconfig" / "page_config.json").write_text(json.dumps(silent))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = "insecure-test-token"
    own = {name: str(home / name.lower()) for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **own, "JUPYTER_CONFIG_DIR": str(home / "config"), "PYTHONPATH": path}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly", f"--ServerApp.root_dir={folder}",
    ]  # fmt: skip
    with open(home / "server.log", "wb") as log:
        server = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status?token={token}", server, home / "server.log")
        yield Lab(address, token, folder)
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(15)
        if server.poll() is None:
            server.kill()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not come up:\n{log.read_text(errors='replace')[-2000:]}", pytrace=False)


class Console:
    """What a page says in its console and the errors that it raises."""

    def __init__(self, page) -> None:
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))


@pytest.fixture(scope="session")
def watch():
    """A function that gives a page's console, for pages that a test opens itself."""
    return Console


@pytest.fixture
def open_page(browser):
    """A function that opens a page of a width and a colour scheme, with its `console`; pages are closed after the test."""
    contexts = []

    def make(width: int = 1400, height: int = 1700, scheme: str = "light", offline: bool = False):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=offline)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.console = Console(page)
        return page

    yield make
    for context in contexts:
        context.close()
