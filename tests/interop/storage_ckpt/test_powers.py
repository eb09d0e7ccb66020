"""Adam's powers are the products that noeira keeps: multiplied one by one in float32."""

import numpy as np
import pytest

from perdure.interop.storage_ckpt.powers import is_power_of, running_power


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.9999999])
@pytest.mark.parametrize("t", [0, 1, 7, 1000, 70_000])
def test_it_is_the_running_product_of_float32(beta: float, t: int):
    product = np.float32(1)
    for _ in range(t):
        product = product * np.float32(beta)

    assert running_power(beta, t) == float(product)
    assert is_power_of(float(product), beta, t)


def test_it_is_not_the_power_and_not_that_of_another_beta():
    assert running_power(0.9, 7) == 0.47829681634902954 != 0.9**7
    assert not is_power_of(running_power(0.9, 7), 0.95, 7)
    assert not is_power_of(running_power(0.999, 1000), 0.99, 1000)
    assert running_power(0.999, 10**12) == running_power(0.999, 10**9)
