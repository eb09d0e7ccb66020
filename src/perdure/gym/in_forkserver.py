"""Imported by Python's fork server and by nothing else: makes it ignore signals to the process group."""

import os

from perdure.gym.forkserver import install

install(os.getpid())
