"""URI templates: expansion as RFC 6570 and another library say, matching as we promise."""

from __future__ import annotations

import string
from typing import Any

import pytest
import uritemplate
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._uri import match
from mcptrio._uri.template import UriTemplate
from mcptrio.errors import DeclarationError

# The variables of RFC 6570 section 3.2
RFC = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("?{x,undef}", "?1024"),
        ("{var:3}", "val"),
        ("{list}", "red,green,blue"),
        ("{list*}", "red,green,blue"),
        ("{keys}", "semi,%3B,dot,.,comma,%2C"),
        ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+path:6}here", "/foo/bhere"),
        ("{+keys*}", "semi=;,dot=.,comma=,"),
        ("{#path,x}here", "#/foo/bar,1024here"),
        ("{#undef}", ""),
        ("{#empty}", "#"),
        ("X{.var:3}", "X.val"),
        ("X{.list*}", "X.red.green.blue"),
        ("X{.empty_keys}", "X"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
        ("{;v,empty,who}", ";v=6;empty;who=fred"),
        ("{;keys*}", ";semi=%3B;dot=.;comma=%2C"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?list}", "?list=red,green,blue"),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{&var:3}", "&var=val"),
        ("{&keys}", "&keys=semi,%3B,dot,.,comma,%2C"),
        ("é%20{var}", "%C3%A9%20value"),
    ],
)
def test_expansion_follows_the_rfc(template: str, expected: str) -> None:
    assert UriTemplate(template).expand(**RFC) == expected


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "%41", "a%", ",", "é", "/?#"]
)
KEYS = st.text(alphabet=string.ascii_letters, min_size=1, max_size=4)
ITEMS = TEXT.filter(bool)
MAPPINGS = st.dictionaries(KEYS, ITEMS, min_size=1, max_size=3).map(lambda pairs: dict(sorted(pairs.items())))
# The other library sorts mappings, and has its own way with empty lists and, behind `;`, with empty members.
VALUES = TEXT | st.lists(ITEMS, min_size=1, max_size=3) | MAPPINGS | st.none()
LITERALS = st.text(alphabet=string.ascii_letters + ":/?#[]@!$&()*+,;=-._~", max_size=4)


@given(
    st.lists(
        st.tuples(
            LITERALS,
            st.sampled_from(["", "+", "#", ".", "/", ";", "?", "&"]),
            st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "*", ":3"])), min_size=1, max_size=3),
        ),
        max_size=3,
    ),
    st.fixed_dictionaries({"a": VALUES, "b": VALUES, "c": VALUES}),
)
def test_expansion_agrees_with_another_library(parts: Any, values: dict[str, Any]) -> None:
    text = ""
    for literal, operator, variables in parts:
        specs = [
            name + ("" if modifier == ":3" and not isinstance(values[name], str) else modifier)
            for name, modifier in variables
        ]
        text += f"{literal}{{{operator}{','.join(specs)}}}"
    assert UriTemplate(text).expand(**values) == uritemplate.expand(text, values)


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("x{a}", [], "x"),
        ("x{;a}", [""], "x;a="),
        ("x{;a*}", ["", "1"], "x;a;a=1"),
        ("x{;a*}", {"k": "", "l": "1"}, "x;k;l=1"),
        ("x{?a*}", ["", "1"], "x?a=&a=1"),
        ("x{?a}", {"b": "1", "a": "2"}, "x?a=b,1,a,2"),
        ("x{?a*}", {}, "x"),
        ("x{/a*}", ["", ""], "x//"),
    ],
)
def test_empty_members_are_written_as_section_3_2_1_says(template: str, value: Any, expected: str) -> None:
    assert UriTemplate(template).expand(a=value) == expected


def test_numbers_are_written_and_other_things_refused() -> None:
    assert UriTemplate("{a}/{b}/{c}/{d*}").expand(a=1, b=1.5, c=True, d=(1, None, 2)) == "1/1.5/true/1,2"
    for template, value in (
        ("{a}", object()),
        ("{a}", [[1]]),
        ("{a:3}", ["x"]),
        ("{a:3}", {"x": 1}),
        ("{a}", "\ud800"),
    ):
        with pytest.raises(ValueError):
            UriTemplate(template).expand(a=value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "}",
        "{a",
        "a}",
        "{}",
        "{+}",
        "{a b}",
        "{a,}",
        "{,a}",
        "{!a}",
        "{=a}",
        "{|a}",
        "{a:0}",
        "{a:99999}",
        "{a:}",
        "{a:3*}",
        "{a**}",
        "{.a..b}",
        "{a.}",
        "{{a}}",
        "a b",
        "a%",
        "a%zz",
        "<a>",
        "a\n",
        "\ud800",
        "{é}",
        "x" * 8193,
        "".join(f"{{a{i}}}" for i in range(257)),
    ],
)
def test_a_malformed_template_is_refused_when_declared(text: str) -> None:
    with pytest.raises(DeclarationError):
        UriTemplate(text)


@given(st.text(alphabet="{}+#./;?&a,*:1%2é ") | st.text())
def test_any_text_is_a_template_or_the_one_error(text: str) -> None:
    try:
        template = UriTemplate(text)
        template.expand(a="x")
        template.match(text)
    except DeclarationError:
        return


@pytest.mark.parametrize(
    ("text", "names", "optional"),
    [
        ("orders://{id}", ("id",), set()),
        ("a{x,y*}/{+p}{?q,r*}{#f}", ("x", "y", "p", "q", "r", "f"), {"q", "r", "f"}),
        ("{b}{a}{b}{/c}", ("b", "a", "c"), {"c"}),
        ("{a.b}/{c%20d}", ("a.b", "c%20d"), set()),
    ],
)
def test_a_template_names_its_variables(text: str, names: tuple[str, ...], optional: set[str]) -> None:
    template = UriTemplate(text)
    assert template.variables == names
    assert template.optional_variables == optional


# -- matching


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("orders://all", "orders://all", {}),
        ("orders://all", "orders://al", None),
        ("orders://{id}", "orders://7", {"id": "7"}),
        ("orders://{id}", "orders://", None),
        ("orders://{id}", "orders://7/8", None),
        ("orders://{id}", "orders://7?x=1", None),
        ("orders://{id}", "orders://7#x", None),
        ("orders://{id}", "orders://7,8", None),
        ("orders://{id}", "other://7", None),
        ("orders://{id}", "orders://me@example.org", {"id": "me@example.org"}),
        ("orders://{id}", "orders://a%2Fb%2f%20", {"id": "a/b/ "}),
        ("orders://{id}", "orders://%C3%A9", {"id": "é"}),
        ("orders://{id}", "orders://é", {"id": "é"}),
        ("orders://{id}", "orders://%C3", None),
        ("orders://{id}", "orders://%ff", None),
        ("orders://{id}", "orders://%", None),
        ("orders://{id}", "orders://%4", None),
        ("orders://{id}", "orders://%zz", None),
        ("orders://{id}", "orders://a\nb", None),
        ("orders://{id}", "orders://\ud800", None),
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("test://template/{id}/data", "test://template//data", None),
        ("test://template/{id}/data", "test://template/1/2/data", None),
        ("a{x}a", "a", None),
        ("a{x}a", "aa", None),
        ("a{x}a", "aba", {"x": "b"}),
        ("{name}.{ext}", "archive.tar.gz", {"name": "archive", "ext": "tar.gz"}),
        ("{a}--{b}", "x---y", {"a": "x", "b": "-y"}),
        ("{a}2{b}", "x%2F2y", {"a": "x/", "b": "y"}),
        ("{a}%2F{b}", "x%2fy", {"a": "x", "b": "y"}),
        ("é/{a}", "%c3%a9/1", {"a": "1"}),
        ("{a,b}", "1,2", {"a": "1", "b": "2"}),
        ("{a,b}", "1", None),
        ("{a,b}", "1,2,3", None),
        ("{a*}", "1,2,%2C", {"a": ["1", "2", ","]}),
        ("file:///{+path}", "file:///a/b%20c?d#e", {"path": "a/b c?d#e"}),
        ("file:///{+path}", "file:///", None),
        (
            "{scheme}://{+path}/{name}.{ext}",
            "x://a/b/c.d.txt",
            {"scheme": "x", "path": "a/b", "name": "c.d", "ext": "txt"},
        ),
        ("{+path}/{b}", "x/y/z", {"path": "x/y", "b": "z"}),
        ("{+path}{?q}", "x/y?q=1", {"path": "x/y", "q": "1"}),
        ("x{/a}", "x", {}),
        ("x{/a}", "x/", {"a": ""}),
        ("x{/a}", "x/1", {"a": "1"}),
        ("x{/a}", "x/1/2", None),
        ("x{/a}", "x/1?y", None),
        ("x/y{/a,b}", "x/y/1", {"a": "1"}),
        ("x/{y}{/a,b}", "x/y/1/2", {"y": "y", "a": "1", "b": "2"}),
        ("x{/a*}", "x", {}),
        ("x{/a*}", "x/1/%2F/3", {"a": ["1", "/", "3"]}),
        ("x{?q}", "x", {}),
        ("x{?q}", "x?q=", {"q": ""}),
        ("x{?q}", "x?q", {"q": ""}),
        ("x{?q}", "x?", None),
        ("x{?q}", "x?q=a,b=c/?", {"q": "a,b=c/?"}),
        ("x{?q}", "x?q=1&q=2", None),
        ("x{?q}", "x?r=1", None),
        ("x{?q}", "x?q=a+b", {"q": "a+b"}),
        ("x{?q,r}", "x?r=2&q=1", {"q": "1", "r": "2"}),
        ("x{?q}{&r}", "x?q=1&r=2", {"q": "1", "r": "2"}),
        ("x{?q*}", "x?q=1&q=2", {"q": ["1", "2"]}),
        ("x{?q*}", "x?a=1&b=2", {"q": {"a": "1", "b": "2"}}),
        ("x{?q*}", "x?a=1&a=2", None),
        ("x{?n,q*}", "x?a=1&n=5", {"n": "5", "q": {"a": "1"}}),
        ("x?f=1&g=2{&q}", "x?f=1&g=2&q=3", {"q": "3"}),
        ("x?f=1{&q}", "x?f=1", {}),
        ("x?f=1{&q}", "x?f=2&q=3", None),
        ("x?f=1{&q}", "x?f=12&q=3", None),
        ("x?f={f}", "x?f=1&g=2", {"f": "1&g=2"}),
        ("x{#f}", "x", {}),
        ("x{#f}", "x#", {"f": ""}),
        ("x{#f}", "x#a/b?c#d", {"f": "a/b?c#d"}),
        ("{a}{/b}{?q}{#f}", "1/2?q=3#4", {"a": "1", "b": "2", "q": "3", "f": "4"}),
        ("{a}{/b}{?q}{#f}", "1#4", {"a": "1", "f": "4"}),
    ],
)
def test_matching_reads_the_values_back(template: str, uri: str, expected: dict[str, Any] | None) -> None:
    assert UriTemplate(template).match(uri) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{a}{b}",
        "{a}{+b}",
        "{a}/{a}",
        "{a}{?a}",
        "{a:3}",
        "{.a}",
        "{;a}",
        "{+a,b}",
        "{+a*}",
        "{#a,b}",
        "{#a*}",
        "{+a}/{+b}",
        "{a*,b}",
        "{a,b*}",
        "{/a,b*}",
        "{/a}/x",
        "{/a}/{b}",
        "{?a}x",
        "{?a}{/b}",
        "{#a}{?b}",
        "{/a}{/b}",
        "{?a*,b*}",
        "{+a}{/b}",
        "x?y{?a}",
        "x#y{#a}",
        "x{&a}",
        "x?{b}{&a}",
    ],
)
def test_a_template_that_could_be_read_in_two_ways_is_refused_when_declared(text: str) -> None:
    template = UriTemplate(text)
    with pytest.raises(DeclarationError, match="cannot be matched"):
        template.require_matchable()
    with pytest.raises(DeclarationError):
        template.match("x")


NOT_EMPTY = TEXT.filter(bool)
REVERSIBLE = {
    "x://{a}/{b}": {"a": NOT_EMPTY, "b": NOT_EMPTY},
    "x://{a,b}:{c*}": {"a": NOT_EMPTY, "b": TEXT, "c": st.lists(TEXT, min_size=2)},
    "{a}/{+b}/{c}": {"a": NOT_EMPTY, "b": TEXT.filter(lambda text: bool(text) and "%" not in text), "c": NOT_EMPTY},
    "x{/a,b}{?q,r}{#f}": {"a": TEXT, "b": TEXT, "q": TEXT, "r": TEXT, "f": TEXT.filter(lambda text: "%" not in text)},
    "x/{y}{/a*}{?q*}": {"y": NOT_EMPTY, "a": st.lists(TEXT, min_size=1), "q": st.lists(TEXT, min_size=1)},
    "x?y=1{&q*}": {"q": st.dictionaries(TEXT.filter(lambda text: text not in ("", "q")), TEXT, min_size=1)},
}


@given(st.data())
def test_an_expanded_template_matches_itself(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(list(REVERSIBLE)))
    values = data.draw(st.fixed_dictionaries(REVERSIBLE[text]))
    template = UriTemplate(text)
    assert template.match(template.expand(**values)) == values


@given(st.text(alphabet="x/:?#&=,%2F1aq") | st.text(), st.sampled_from([*REVERSIBLE, "{+p}{?q}", "{a}.{b}-{c}"]))
def test_any_uri_matches_or_does_not(uri: str, text: str) -> None:
    """Matching any URI does not raise, and a match that is expanded again matches alike."""
    template = UriTemplate(text)
    values = template.match(uri)
    if values is not None and "%" not in uri:
        again = template.match(template.expand(**values))
        assert again is not None
        assert again.keys() == values.keys()


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("-".join(f"{{a{i}}}" for i in range(256)), "-" * 65_535),
        ("-".join(f"{{a{i}}}" for i in range(256)), "a-" * 32_767),
        ("{+p}" + "".join(f"/{{a{i}}}" for i in range(255)), "/" * 65_535),
        ("{a}" + "22%22" * 1600 + "{b}", "%22" * 21_845),
        ("x{?q*}", "x?" + "a=1&" * 16_000),
        ("x{/p*}", "x" + "/a" * 32_000),
    ],
)
def test_hostile_uris_are_answered_in_one_pass(text: str, uri: str) -> None:
    """CVE-2026-0621 was a pattern that took minutes here: no answer would come at all."""
    values = UriTemplate(text).match(uri)
    assert values is None or len(values) == len(UriTemplate(text).variables)


def test_a_uri_beyond_the_bound_never_matches() -> None:
    template = UriTemplate("x{+a}")
    assert template.match("x" * 65_536) is not None
    assert template.match("x" * 65_537) is None


@pytest.mark.defect("S2")
def test_a_uri_is_normalised_once_and_only_if_a_prefix_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: list[str] = []
    templates = [UriTemplate(f"files://{number}/{{a}}/{{b}}") for number in (1, 2, 2, 2)]
    for template in templates:
        template.require_matchable()
    fold = match._fold
    monkeypatch.setattr(match, "_fold", lambda text: folded.append(text) or fold(text))
    subject = match.Subject("other://1/%41/b")
    assert [template.match(subject) for template in templates] == [None] * 4
    assert folded == []
    subject = match.Subject("files://2/%41/b")
    assert [template.match(subject) for template in templates] == [None, *[{"a": "A", "b": "b"}] * 3]
    assert folded == ["files://2/%41/b"]


@pytest.mark.defect("S2")
def test_a_uri_with_too_many_query_parameters_matches_nothing() -> None:
    template = UriTemplate("files://a{?q*}")
    assert template.match("files://a?" + "&".join(["q=1"] * match.MAX_PARAMETERS)) is not None
    assert template.match("files://a?" + "&".join(["q=1"] * (match.MAX_PARAMETERS + 1))) is None


@pytest.mark.parametrize("uri", ["files://%C3%A9/x", "files://\u00e9/x", "files://%c3%a9/x"])
def test_a_non_ascii_prefix_is_compared_after_normalising(uri: str) -> None:
    assert UriTemplate("files://\u00e9/{a}").match(uri) == {"a": "x"}


def test_the_bytes_of_a_uri_are_bounded() -> None:
    template = UriTemplate("f:{a}")
    assert template.match("f:" + "\u00e9" * (match.MAX_URI // 2 - 1)) is not None
    assert template.match("f:" + "\u00e9" * (match.MAX_URI // 2)) is None
