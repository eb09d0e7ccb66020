"""A target network that is copied now and then, and was forgotten."""

import torch
from learner import UPDATES, given, open_run

torch.manual_seed(0)
torch.set_num_threads(1)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def main() -> None:
    net, target = network(), network()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    run = open_run()
    live = {"net": net, "optimizer": optimizer, **given(target=target)}
    start = run.restore(**live).env_steps
    for update in range(start + 1, UPDATES + 1):
        observations = torch.randn(8, 3)
        with torch.no_grad():
            goal = 1 + 0.9 * target(observations)
        loss = (net(observations) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 2 == 0:
            target.load_state_dict(net.state_dict())
        run.boundary(env_steps=update, metrics={"loss": loss.item()})
    run.finish()


main()
