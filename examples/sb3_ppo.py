"""PPO of Stable-Baselines3, with linear schedules, normalised environments and an evaluation beside it.

`python examples/sb3_ppo.py --run runs/sb3` trains; killed and started again with the same command it goes on, bit for
bit. Lines that end in `# perdure` do that. Without them this is a complete training script.
"""

import argparse
from collections.abc import Sequence

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

import perdure  # perdure
import perdure.sb3  # perdure


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PPO of Stable-Baselines3.")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--n-envs", type=int, default=4)
    parser.add_argument("--n-steps", type=int, default=256)
    parser.add_argument("--eval-every", type=int, default=2_500, help="calls of step between evaluations")
    parser.add_argument("--run", default="runs/sb3")  # perdure
    parser.add_argument("--checkpoint-every", type=int, default=5_000)  # perdure
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> PPO:
    args = parse(argv)
    envs = VecNormalize(make_vec_env(args.env, args.n_envs, seed=args.seed))
    eval_envs = VecNormalize(make_vec_env(args.env, 1, seed=args.seed + 1000), training=False, norm_reward=False)
    callbacks: list[BaseCallback] = [EvalCallback(eval_envs, eval_freq=args.eval_every, verbose=0)]
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=args.n_steps,
        batch_size=args.n_steps,
        n_epochs=4,
        learning_rate=LinearSchedule(1e-3, 0.0, end_fraction=1.0),
        clip_range=LinearSchedule(0.2, 0.05, end_fraction=1.0),
        seed=args.seed,
        device="cpu",
    )

    every, free = perdure.Every(env_steps=args.checkpoint_every), ["run", "checkpoint_every"]  # perdure
    run = perdure.Run(args.run, config=args, horizon="total_steps", free=free, every=every)  # perdure
    callbacks.append(perdure.sb3.callback(run))  # perdure
    return model.learn(args.total_steps, callback=callbacks)


if __name__ == "__main__":
    main()
