"""Helpers for return values: pictures, sounds, links and messages."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import attrs
import pytest

from mcptrio import types

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"<svg xmlns=", "image/svg+xml"),
    ],
)
def test_the_type_of_a_picture_is_seen_in_its_bytes(data: bytes, mime_type: str) -> None:
    content = types.Image(data).to_content()
    assert content.mime_type == mime_type
    assert b64decode(content.data) == data


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [(WAV, "audio/wav"), (b"ID3\x04", "audio/mpeg"), (b"OggS\x00", "audio/ogg"), (b"fLaC\x00", "audio/flac")],
)
def test_the_type_of_a_sound_is_seen_in_its_bytes(data: bytes, mime_type: str) -> None:
    assert types.Audio(data).to_content().mime_type == mime_type


def test_a_file_is_read_when_the_content_is_made(tmp_path: Path) -> None:
    path = tmp_path / "plot.JPG"
    image = types.Image(path=path)
    path.write_bytes(b"not recognisable")
    content = image.to_content()
    assert (b64decode(content.data), content.mime_type) == (b"not recognisable", "image/jpeg")


def test_the_mime_type_of_the_bytes_wins_over_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "plot.jpg"
    path.write_bytes(PNG)
    assert types.Image(path=str(path)).to_content().mime_type == "image/png"


def test_a_type_that_is_given_is_kept() -> None:
    content = types.Image(b"?", mime_type="image/x-own", meta={"a": 1}).to_content()
    assert (content.mime_type, content.meta) == ("image/x-own", {"a": 1})


def test_an_undetectable_mime_type_must_be_given() -> None:
    with pytest.raises(ValueError, match="pass mime_type="):
        types.Image(b"?").to_content()
    with pytest.raises(ValueError, match="which audio type"):
        types.Audio(PNG).to_content()


def test_either_data_or_a_path_is_given() -> None:
    with pytest.raises(ValueError, match="Image takes either"):
        types.Image()
    with pytest.raises(ValueError, match="Audio takes either"):
        types.Audio(b"x", path="y")


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("orders://7", "7"),
        ("https://example.org/a/b.txt", "b.txt"),
        ("https://example.org/a/", "a"),
        ("urn:x", "urn:x"),
    ],
)
def test_a_link_without_a_name_is_named_after_the_end_of_its_uri(uri: str, name: str) -> None:
    link = types.ResourceLink(uri)
    assert link == types.ResourceLink(uri=uri, name=name)
    assert types.to_content(link) is link
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        link.name = "other"  # type: ignore[misc]


def test_a_link_takes_its_uri_and_name_by_position() -> None:
    link = types.ResourceLink("a://b", "n", title="t", description="d", mime_type="m", size=3)
    assert link == types.ResourceLink(uri="a://b", name="n", title="t", description="d", mime_type="m", size=3)


def test_messages_have_short_constructors() -> None:
    assert types.user("hi").to_prompt_message() == types.PromptMessage(
        role="user", content=types.TextContent(text="hi")
    )
    message = types.assistant(types.Image(PNG)).to_prompt_message()
    assert message.role == "assistant"
    assert isinstance(message.content, types.ImageContent)


def test_a_content_block_stays_itself() -> None:
    block = types.EmbeddedResource(resource=types.TextResourceContents(uri="u", text="t"))
    assert types.to_content(block) is block


def test_a_system_message_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="instructions of the server"):
        types.Message("system", "Be brief.")  # type: ignore[arg-type]
