"""The fault: a learning-rate scheduler that is not handed to `restore`."""

import sys
from typing import Any

import torch

import perdure

MENDED = "--mended" in sys.argv

torch.manual_seed(1)
torch.set_num_threads(1)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 0.9**update)
more: dict[str, Any] = {"scheduler": scheduler} if MENDED else {}
with perdure.Run("runs/x", horizon=100) as run:
    run.restore(net=net, optimizer=optimizer, **more)
    while not run.is_finished:
        loss = net(torch.randn(4, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.boundary(env_steps=run.env_steps + 1, metrics={"loss": loss.item()})
    run.finish()
