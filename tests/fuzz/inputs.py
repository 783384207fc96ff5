"""Inputs without feedback: any bytes, and the seeds with a few edits."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"


def seeds(name: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]


def inputs(name: str) -> st.SearchStrategy[bytes]:
    edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=4)), max_size=6)
    pieces = st.lists(st.sampled_from(seeds(name)), max_size=2).map(b"".join)
    return st.binary(max_size=300) | st.builds(edited, pieces, edits)


def edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Some bytes replaced by others, at a few places."""
    for place, removed, put in edits:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + removed :]
    return data
