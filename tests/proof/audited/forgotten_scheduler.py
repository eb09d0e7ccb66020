"""A scheduler of PyTorch that restore was not given."""

import torch
from learner import UPDATES, given, open_run

torch.manual_seed(0)
torch.set_num_threads(1)


def main() -> None:
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    run = open_run()
    live = {"net": net, "optimizer": optimizer, **given(scheduler=scheduler)}
    start = run.restore(**live).env_steps
    for update in range(start + 1, UPDATES + 1):
        loss = (net(torch.randn(8, 3)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.boundary(env_steps=update, metrics={"loss": loss.item()})
    run.finish()


main()
