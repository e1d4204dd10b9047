"""A Hydra script: {overrides} hands the settings of an arm over as key=value.

trainer:
  command: ["{python}", hydra_trainer.py, "{overrides}", "seed={seed}", "hydra.run.dir={run_dir}/hydra"]
settings: {model: {layers: [64, 64]}}
arms: {slow: {optim.rate: 0.001}, fast: {optim.rate: 0.01}}
"""

from dataclasses import dataclass, field

import hydra
from hydra.core.config_store import ConfigStore

from dreamproof.client import Run


@dataclass
class Model:
    layers: list[int] = field(default_factory=lambda: [32])


@dataclass
class Optim:
    rate: float = 0.01


@dataclass
class Config:
    seed: int = 0
    model: Model = field(default_factory=Model)
    optim: Optim = field(default_factory=Optim)


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def main(config):
    run = Run()
    weight = [0.0]
    step = run.restore(lambda folder: weight.__setitem__(0, float((folder / "weight.txt").read_text())))
    while step < run.agent_steps and not run.stopping:
        weight[0] += config.optim.rate * (3.0 - weight[0])
        step += 1
        run.log(step, updates=step, loss=(3.0 - weight[0]) ** 2)
    run.finish(step, step, lambda folder: (folder / "weight.txt").write_text(str(weight[0])))


if __name__ == "__main__":
    main()
