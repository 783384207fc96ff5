"""Resources, prompts and completion."""

from __future__ import annotations

from functools import partial

from content import PNG, embedded

from mcptrio import Image, Message, Server, user

server = Server("library")


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return PNG


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> dict[str, object]:
    """Data made from the id in the URI."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


async def page(number: int) -> str:
    return f"This is page {number}."


for number in range(1, 26):
    server.add_resource(
        f"test://page/{number:02}",
        partial(page, number),
        name=f"page_{number:02}",
        description=f"Page {number} of 25, so that the list has several pages.",
        mime_type="text/plain",
    )


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: The first argument.
        arg2: The second argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
async def first_arguments(prefix: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(prefix)]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803 - the suite's spelling
    """A prompt that carries a resource.

    Args:
        resourceUri: Which resource.
    """
    return [
        user(embedded(resourceUri, "text/plain", "Embedded resource content for testing.")),
        user("Please process the embedded resource above."),
    ]


@server.prompt
async def test_prompt_with_image() -> list[Message]:
    """A prompt that carries a picture."""
    return [user(Image(PNG)), user("Please analyze the image above.")]
