"""Evaluates the proven checkpoint of a cell: `evaluate.py RUN_DIR CONDITION ALGORITHM`."""

import sys

import stable_baselines3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from dreamproof.client import Run

run = Run(sys.argv[1])
model = getattr(stable_baselines3, sys.argv[3]).load(run.checkpoint, device="cpu")
env = make_vec_env("CartPole-v1", seed=10_000 + run.seed)
returns, lengths = evaluate_policy(model, env, n_eval_episodes=run.episodes, return_episode_rewards=True)
run.write_evaluation(sys.argv[2], {"return": returns, "length": lengths})
