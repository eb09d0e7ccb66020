"""Starts environments in processes of their own, prints their ids, and leaves without closing them.

python leaving.py exit|kill
"""

import os
import signal
import sys

import gymnasium

from perdure.gym import AsyncVectorEnv, make_vec

if __name__ == "__main__":
    envs = make_vec([lambda: gymnasium.make("CartPole-v1")] * 3, mode="async", context="fork")
    assert isinstance(envs, AsyncVectorEnv)
    envs.reset(seed=1)
    print(*(process.pid for process in envs.processes), flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
