"""Videos show the policy's episodes, leave no trace in the training, and go on after a resume."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from flax import nnx

from perdure.nnx import VideoConfig, make_mlp_actor_critic, train_ppo
from perdure.nnx.environment import EnvState
from perdure.nnx.video import film


@dataclass(frozen=True)
class Rendered:
    """Counts to 5 from 0, and paints a picture in the shade of the count."""

    limit: int = 5

    def reset(self, key, /):
        return self._state(jax.numpy.zeros((), jax.numpy.int32), 0.0)

    def step(self, state, action, /):
        return self._state(state.data + 1, 1.0)

    def _state(self, count, reward):
        return EnvState(
            data=count,
            obs=count.astype(jax.numpy.float32)[None],
            reward=jax.numpy.float32(reward),
            done=count >= self.limit,
        )

    def for_rendering(self, state):
        return state.data

    def render(self, trajectory, height, width):
        return [np.full((height, width, 3), count, np.uint8) for count in trajectory]


SMALL = VideoConfig(enabled=True, every_steps=64, episode_length=7, render_kwargs={"height": 2, "width": 3})


def networks(seed: int = 0):
    return make_mlp_actor_critic(1, 2, [4], [4], nnx.Rngs(seed), action_kind="discrete")


def config(toys, video=SMALL, **changes):
    return dataclasses.replace(toys.small_config(**changes), video=video)


def test_a_film_holds_each_state_and_the_first_episodes_return():
    graphdef, state = nnx.split(networks())
    data = film(Rendered(), graphdef, (state,), SMALL, jax.random.key(0), 12)

    assert data.frames.shape == (8, 2, 3, 3)
    assert data.frames.dtype == np.uint8
    assert data.frames[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2], "the end of an episode is followed by the next"
    assert (data.step, data.episode_reward, data.episode_length) == (12, 5.0, 7)


def test_filming_leaves_every_bit_of_the_training(toys):
    films = []
    filmed = train_ppo(Rendered(), networks(), config(toys), video_fn=films.append)
    plain = train_ppo(Rendered(), networks(), config(toys, VideoConfig()))

    assert [data.step for data in films] == [64, 128]
    assert toys.leaves_of_state(filmed.training_state) == toys.leaves_of_state(plain.training_state)
    assert filmed.eval_history == plain.eval_history


def test_a_resume_films_what_the_run_would_have_filmed(toys, tmp_path):
    class Stop(Exception):
        pass

    def stop(metrics, steps):
        if steps == 96:
            raise Stop

    whole, parts = [], []
    settings = config(toys, checkpoint_every_steps=32)
    train_ppo(Rendered(), networks(), settings, video_fn=whole.append)
    with pytest.raises(Stop):
        train_ppo(Rendered(), networks(), settings, video_fn=parts.append, log_fn=stop, run=tmp_path / "run")
    train_ppo(Rendered(), networks(3), settings, video_fn=parts.append, run=tmp_path / "run")

    assert [data.step for data in parts] == [data.step for data in whole] == [64, 128]
    assert all((a.frames == b.frames).all() for a, b in zip(parts, whole, strict=True))


def test_videos_may_be_turned_on_at_a_resume(toys, tmp_path):
    films = []
    train_ppo(Rendered(), networks(), config(toys, VideoConfig()), total_steps=32, run=tmp_path / "run")
    train_ppo(Rendered(), networks(), config(toys), video_fn=films.append, run=tmp_path / "run")

    assert [data.step for data in films] == [64, 128]


def test_an_environment_that_cannot_be_filmed_is_refused_before_training(toys):
    with pytest.raises(ValueError, match=r"config.video.enabled, but Counting has no method render\(trajectory"):
        train_ppo(toys.Counting(), networks(), config(toys), video_fn=lambda data: None)
