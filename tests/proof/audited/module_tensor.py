"""A tensor that a module of the script keeps: a baseline that follows the returns."""

import torch
from learner import UPDATES, given, open_run

torch.manual_seed(0)
torch.set_num_threads(1)
BASELINE = torch.zeros(3)


def main() -> None:
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = open_run()
    restored = run.restore(net=net, optimizer=optimizer, **given(baseline=BASELINE))
    BASELINE.copy_(getattr(restored, "baseline", BASELINE))
    for update in range(restored.env_steps + 1, UPDATES + 1):
        returns = torch.randn(8, 3)
        BASELINE.mul_(0.9).add_(0.1 * returns.mean(0))
        loss = (net(returns) - returns + BASELINE).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.boundary(env_steps=update, metrics={"loss": loss.item()}, **given(baseline=BASELINE))
    run.finish()


main()
