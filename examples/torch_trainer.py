"""A PyTorch loop with dreamproof.client: model and optimiser are saved and restored together.

trainer: {command: ["{python}", torch_trainer.py]}
"""

import torch

from dreamproof.client import Run

run = Run()
torch.manual_seed(run.seed)
model = torch.nn.Linear(4, 1)
optimiser = torch.optim.Adam(model.parameters(), lr=run.settings.get("rate", 1e-3))


def read(folder):
    saved = torch.load(folder / "state.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])


def write(folder):
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, folder / "state.pt")


def all_finite():
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


step = run.restore(read)
while step < run.agent_steps and not run.stopping:
    inputs = torch.randn(32, 4)
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    step += 32
    run.log(step, updates=step // 32, loss=loss.item())
    if run.save_is_due(step, every=10_000):
        run.save(step, step // 32, write, finite=all_finite())
run.save(step, step // 32, write, finite=all_finite())
run.finish(step, step // 32, write)
