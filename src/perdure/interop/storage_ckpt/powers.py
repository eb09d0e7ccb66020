"""Adam's powers of beta: the running product of float32 that noeira keeps and stores."""

import math

import numpy as np

_BLOCK = 1 << 16


def running_power(beta: float, t: int) -> float:
    """`beta` multiplied `t` times in float32, rounded each time, from 1.

    It is not `beta ** t`: the two differ in the last bits, and noeira resumes from the product.
    """
    product, factor = np.float32(1), np.float32(beta)
    left = t
    while left and product != np.float32(product * factor):
        block = np.full(min(left, _BLOCK) + 1, factor, np.float32)
        block[0] = product
        product = np.multiply.accumulate(block, dtype=np.float32)[-1]
        left -= len(block) - 1
    return float(product)


def is_power_of(power: float, beta: float, t: int) -> bool:
    """Whether a stored power can be that of this beta: rounding of a product in float32 is allowed for."""
    if power <= 1e-30 or t <= 0 or beta <= 0:
        return power <= 1.0
    return math.isclose(math.log(power), t * math.log(beta), rel_tol=1e-3, abs_tol=1e-6 + t * 1e-7)
