"""The array type that this package speaks."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
