"""The list of packages: every one under `ren_lab/`, and the two that pyproject.toml maps to folders beside it."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["ren_lab", "ren_lab.*"]), "ren_lab.widgets", "ren_lab._notebooks"])
