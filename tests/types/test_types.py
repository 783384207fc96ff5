"""The classes that handlers see: how they are built, compared and printed."""

from __future__ import annotations

import copy
import pickle

import attrs
import pytest

from mcptrio import types

from .examples import wire_classes


@pytest.mark.parametrize("cls", wire_classes(), ids=lambda cls: cls.__name__)
def test_every_class_is_slotted_keyword_only_and_documented(cls: type) -> None:
    assert cls.__doc__
    assert not hasattr(cls.__new__(cls), "__dict__")
    by_position = ("uri", "name") if cls is types.ResourceLink else ()  # handlers return it as they return `Image`
    assert tuple(f.name for f in attrs.fields(cls) if f.init and not f.kw_only) == by_position


@pytest.mark.parametrize("cls", wire_classes(), ids=lambda cls: cls.__name__)
def test_no_class_has_a_default_that_would_be_left_out_unnoticed(cls: type) -> None:
    """A field is required, absent by default, empty, or a fixed tag; only `None` is left out on the wire."""
    for f in attrs.fields(cls):
        assert f.default in (attrs.NOTHING, None, (), "") or not f.init


def test_a_value_cannot_be_changed() -> None:
    tool = types.Tool(name="t", input_schema={})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tool.name = "u"  # type: ignore[misc]
    assert attrs.evolve(tool, name="u") == types.Tool(name="u", input_schema={})


def test_values_are_equal_by_class_and_fields() -> None:
    assert types.Params(meta={"a": 1}) == types.Params(meta={"a": 1})
    assert types.Params() != types.PaginatedParams()
    assert types.SubscribeParams(uri="a") != types.ResourceUpdatedParams(uri="a")
    assert types.TextContent(text="a") != types.TextContent(text="b")
    assert len({types.TextContent(text="a"), types.TextContent(text="a")}) == 1


def test_absent_fields_are_not_printed() -> None:
    result = types.CallToolResult(content=[types.TextContent(text="x")], is_error=False)
    assert repr(result) == "CallToolResult(content=(TextContent(text='x'),), is_error=False)"


def test_a_list_may_be_given_for_a_tuple_but_a_lone_string_may_not() -> None:
    assert types.Icon(src="s", sizes=["any"]).sizes == ("any",)
    assert types.ListToolsResult(tools=iter([])).tools == ()
    with pytest.raises(TypeError, match="put it in a list"):
        types.Icon(src="s", sizes="any")


def test_null_is_one_object_that_survives_copying() -> None:
    assert repr(types.NULL) == "NULL"
    assert not types.NULL
    assert types.Null() is types.NULL
    assert copy.deepcopy(types.NULL) is types.NULL
    assert pickle.loads(pickle.dumps(types.NULL)) is types.NULL


def test_the_type_tag_of_content_is_fixed() -> None:
    with pytest.raises(TypeError):
        types.TextContent(text="x", type="image")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("table", "count"), [("CONTENT_BY_TYPE", 5), ("SAMPLING_CONTENT_BY_TYPE", 5), ("REFERENCE_BY_TYPE", 2)]
)
def test_a_tag_table_lists_each_class_under_its_own_tag(table: str, count: int) -> None:
    rows = getattr(types, table)
    assert len(rows) == count
    for tag, cls in rows.items():
        assert attrs.fields(cls).type.default == tag


def test_a_system_role_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="user message or in the instructions"):
        types.PromptMessage(role="system", content=types.TextContent(text="x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="system_prompt"):
        types.SamplingMessage(role="system", content=types.TextContent(text="x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'tool'"):
        types.PromptMessage(role="tool", content=types.TextContent(text="x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{}, {"mode": "form"}, {"mode": "form", "url": "u"}, {"mode": "url"}])
def test_an_elicitation_has_what_its_mode_needs(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="mode needs"):
        types.ElicitParams(message="m", **fields)  # type: ignore[arg-type]


def test_sampling_content_is_always_a_tuple() -> None:
    block = types.TextContent(text="x")
    assert types.SamplingMessage(role="user", content=block).content == (block,)
    assert types.CreateMessageResult(role="assistant", content=[block, block], model="m").content == (block, block)


def test_the_text_of_what_a_model_or_a_tool_said_is_all_that_is_text() -> None:
    picture = types.ImageContent(data="eA==", mime_type="image/png")
    blocks = [types.TextContent(text="one"), picture, types.TextContent(text="two")]
    assert types.CallToolResult(content=blocks).text == "one\ntwo"
    assert types.CallToolResult().text == ""
    assert types.CreateMessageResult(role="assistant", content=blocks, model="m").text == "one\ntwo"
    assert types.CreateMessageResult(role="assistant", content=picture, model="m").text == ""


def test_every_exported_name_exists_once() -> None:
    assert len(set(types.__all__)) == len(types.__all__)
    assert all(hasattr(types, name) for name in types.__all__)
