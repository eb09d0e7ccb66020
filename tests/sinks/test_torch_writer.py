"""With PyTorch loaded the script gets PyTorch's own writer, on the run's event file."""

from pathlib import Path

import numpy as np
import pytest
from tests.sinks.driving import Driver

from perdure.sinks import TensorBoard

pytest.importorskip("tensorboard")
pytest.importorskip("torch")


def test_histograms_images_and_scalars_of_a_resumed_run_are_there_once(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    driver = Driver(tmp_path / "run", TensorBoard)
    for boundaries in (3, 2):
        with driver.open() as run:
            writer = run.summary_writer()
            assert isinstance(writer, SummaryWriter)
            for _ in range(boundaries):
                step = run.env_steps + 10
                writer.add_scalar("own", step, step)
                writer.add_histogram("weights", np.arange(step), step)
                writer.add_image("frame", np.zeros((3, 4, 4)), step)
                driver.step(run, loss=1.0)
            writer.close()

    everything = {"scalars": 0, "histograms": 0, "images": 0}
    accumulator = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance=everything).Reload()
    found = {
        "own": accumulator.Scalars("own"),
        "loss": accumulator.Scalars("loss"),
        "weights": accumulator.Histograms("weights"),
        "frame": accumulator.Images("frame"),
    }
    for tag, events in found.items():
        assert [event.step for event in events] == [10, 20, 30, 40], tag
    assert len(list((tmp_path / "run" / "tensorboard").glob("events.*"))) == 2
