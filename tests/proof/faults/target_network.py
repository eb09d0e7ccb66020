"""The fault: a target network is not handed to `restore`, and begins as a copy of the network again."""

import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

rng, network = np.random.default_rng(1), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    if MENDED:
        s = run.restore(rng=rng, network=network, target=network.copy())
        network, target = s.network, s.target
    else:
        network = run.restore(rng=rng, network=network).network
        target = network.copy()
    while not run.is_finished:
        network = network + 0.1 * (rng.normal(size=3) + 0.9 * target - network)
        if run.boundary_number % 4 == 1:
            target = network.copy()
        run.boundary(env_steps=run.env_steps + 1, network=network, **({"target": target} if MENDED else {}))
    run.finish()
