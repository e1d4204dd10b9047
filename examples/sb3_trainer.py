"""PPO or A2C of stable-baselines3 with the ready callback of dreamproof.client.

    trainer:
      command:  ["{python}", sb3_trainer.py, train, "{settings.algorithm}"]
      evaluate: ["{python}", sb3_trainer.py, evaluate, "{settings.algorithm}", "{condition}"]
    agent_steps_tolerance: 2048        # rollouts are whole

Without any change to a script, `adapter: sb3` reads what stable-baselines3 writes by itself; see docs/contract.md.
"""

import sys

import stable_baselines3
from stable_baselines3.common.evaluation import evaluate_policy

from dreamproof.client import Run, sb3_callback

run = Run()
kind = getattr(stable_baselines3, sys.argv[2])


def train():
    model = kind("MlpPolicy", "CartPole-v1", seed=run.seed)
    loaded = []
    step = run.restore(lambda folder: loaded.append(kind.load(folder / "model.zip", env=model.get_env())))
    model = loaded[0] if loaded else model
    model.learn(run.agent_steps - step, callback=sb3_callback(run), reset_num_timesteps=not loaded)


def evaluate(condition):
    model = kind.load(run.checkpoint / "model.zip")
    env = kind("MlpPolicy", "CartPole-v1", seed=10_000 + run.seed).get_env()
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=run.episodes, return_episode_rewards=True)
    run.write_evaluation(condition, {"return": returns, "length": lengths})


if __name__ == "__main__":
    train() if sys.argv[1] == "train" else evaluate(sys.argv[3])
