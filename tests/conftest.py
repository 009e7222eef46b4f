"""What all tests share: the verifier is on, property tests have no deadline, and what a test needs is there or it is skipped."""

import os

import pytest
from hypothesis import settings

# Before anything reads the options, and inherited by every process that a test starts.
os.environ.setdefault("REN_VERIFY", "1")
os.environ.setdefault("REN_DEVICE", "python")  # the reference; tests of other devices name theirs

settings.register_profile("untimed", deadline=None, print_blob=True, max_examples=60)
settings.load_profile("untimed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `device(name)` where that device is not available."""
    for mark in item.iter_markers("device"):
        from ren_lab.backends import devices

        wanted = mark.args[0].partition(":")[0]
        found = {device.name: device for device in devices()}[wanted]
        if not found.available:
            pytest.skip(f"device {wanted} is not available: {found.description}")
