"""What every test and doctest stands on: no network, no user caches, one thread, one seed.

It lies at the root, not in ``tests``, because the doctests in ``simbert_hf`` need it as well.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# Triton comes with torch where there is a GPU.
collect_ignore = [] if find_spec("triton") else ["simbert_hf/training/kernels.py"]

# Set before any test imports a Hugging Face library: they read these once.
_HF_HOME = tempfile.TemporaryDirectory(prefix="simbert_hf-tests-")
os.environ["HF_HOME"] = _HF_HOME.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # data loaders fork workers


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the libraries: it takes half a second to go through them."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models run faster, and sum in one order, on a single thread."""
    torch.set_num_threads(1)
    yield
    _HF_HOME.cleanup()


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Make every test draw the same numbers, whichever tests run beside it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  Hugging Face libraries draw from this global state
    torch.manual_seed(0)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let no file be made in a folder, whoever runs the tests: root may everywhere."""
    made = tempfile.TemporaryFile

    def refuse(folder: Path) -> None:
        def make(*, dir: Path) -> Any:
            if dir == folder:
                raise PermissionError(13, "Permission denied")
            return made(dir=dir)

        monkeypatch.setattr("simbert_hf.utils.atomic.TemporaryFile", make)

    return refuse
