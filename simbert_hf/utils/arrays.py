"""Names for the kinds of arrays that modules exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
Reals = NDArray[np.floating]  # of any precision
Vectors = NDArray[np.float32]
