"""Stable-Baselines3: `model.learn(N, callback=perdure.sb3.callback(run))` can be stopped anywhere, resumed exactly."""

from perdure.sb3.guiding import callback

__all__ = ["callback"]
