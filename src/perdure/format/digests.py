"""Digests: XXH3-128 as text. They find accidents, not forgers (SECURITY.md)."""

import re

import xxhash

Bytes = bytes | bytearray | memoryview
"""Anything with a contiguous buffer."""

DIGEST_PATTERN = re.compile(r"xxh3_128:[0-9a-f]{32}")
"""The only spelling of a digest: lower case, compared as text."""


class Digest:
    """A digest that grows with the bytes that pass by."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()
        self.length = 0
        """Bytes taken in so far."""

    def update(self, data: Bytes) -> None:
        """Takes in the next bytes."""
        self._state.update(data)
        self.length += memoryview(data).nbytes

    def text(self) -> str:
        """The digest of everything taken in so far."""
        return f"xxh3_128:{self._state.hexdigest()}"


def digest_of(data: Bytes) -> str:
    """The digest of `data` alone."""
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}"
