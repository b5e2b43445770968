"""Arrays in page-locked memory, from which a GPU copies while the code does something else."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np

from ._errors import Error

_Array = np.ndarray[Any, Any]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """Make an array in page-locked memory of the library that the code uses: PyTorch or CuPy.

    Both keep freed memory for the next array, as page-locking is slow. The array owns its memory: the code may keep it.
    Raises `Error` where the environment has neither library, or no GPU.
    """
    library = next((name for name in ("torch", "cupy") if sys.modules.get(name)), None) or _installed()
    try:
        if library == "torch":
            torch = importlib.import_module("torch")
            # As bytes: PyTorch has no unsigned integers of several bytes in all versions.
            memory = torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8, pin_memory=True).numpy()
            array: _Array = memory.view(dtype).reshape(shape)
        else:
            array = importlib.import_module("cupyx").empty_pinned(shape, dtype)
    except Exception as error:
        raise Error("cannot gather into page-locked memory", f"{library}: {error}", "write `gather=True`") from error
    return array


def _installed() -> str:
    for name in ("torch", "cupy"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return name
    cause = "its environment has neither `torch` nor `cupy`"
    raise Error("cannot gather into page-locked memory", cause, "install one of them, or write `gather=True`")
