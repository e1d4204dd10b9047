"""A training script of stable-baselines3 as people have it: it knows nothing of dreamproof."""

import argparse
import os

import stable_baselines3
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.logger import configure

parser = argparse.ArgumentParser()
parser.add_argument("--algorithm", default="PPO")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=6000)
parser.add_argument("--logdir", default="logs")
parser.add_argument("--log", default="csv", help="csv, json or tensorboard")
options = parser.parse_args()

model = getattr(stable_baselines3, options.algorithm)("MlpPolicy", "CartPole-v1", seed=options.seed, device="cpu")
model.set_logger(configure(options.logdir, [options.log]))
model.learn(options.steps, callback=CheckpointCallback(2000, os.path.join(options.logdir, "checkpoints")))
model.save(os.path.join(options.logdir, "final_model"))
