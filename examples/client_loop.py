"""A plain training loop with dreamproof.client: resumed, stopped, proven and evaluated like our own trainers.

python client_loop.py train                  with settings.json in $DREAMPROOF_RUN_DIR
python client_loop.py evaluate CONDITION
"""

import json
import random
import sys

from dreamproof.client import Run  # or: copy client.py next to this file and write `from client import Run`

run = Run()
state = {"weight": 0.0}


def read(folder):
    state.update(json.loads((folder / "weights.json").read_text()))


def write(folder):
    (folder / "weights.json").write_text(json.dumps(state))


def train():
    step = run.restore(read)
    while step < run.agent_steps and not run.stopping:
        target = 3.0 + random.Random(f"{run.seed} {step}").gauss(0, 1)
        error = target - state["weight"]
        state["weight"] += run.settings.get("rate", 0.01) * error
        step += 1
        run.beat(step, updates=step)
        if step % 500 == 0:
            run.log(step, updates=step, loss=error**2)
        if run.save_is_due(step, every=2_000):
            run.save(step, updates=step, write=write)
    run.finish(step, updates=step, write=write)


def evaluate(condition):
    read(run.checkpoint)
    noise = random.Random(f"{run.seed} {condition}")
    returns = [-abs(3.0 - state["weight"] + noise.gauss(0, 0.1)) for _ in range(run.episodes)]
    run.write_evaluation(condition, {"return": returns})


if __name__ == "__main__":
    train() if sys.argv[1] == "train" else evaluate(sys.argv[2])
