"""Tokens lose nothing, stand where they say, and are what they look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideshift.ddl.tokens import Token, TokenKind, replace_spans, same_name, significant, tokenize, unquote

PIECES = st.sampled_from(
    ["a", "Ä9_$", '"x""y"', "`b`", "[c d]", "'it''s'", "x'0F'", "X'", "1.5e-3", ".5", "0xFF", "1_000", "--c\n", "/* d */", "/*", "->>", "::", "||", "?1", ":name", "$", "@", ";", "(", ")", ",", ".", "\n", " ", "\t", "'", '"', "[", "\x00", "\ufeff", "é"]
)


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=20).map("".join)))
def test_the_tokens_of_a_text_joined_are_the_text(text: str) -> None:
    """Whatever the text, its tokens follow one another without gaps and give it back."""
    tokens = list(tokenize(text))

    assert "".join(token.text for token in tokens) == text
    assert [token.start for token in tokens] == [0, *(token.end for token in tokens)][: len(tokens)]
    assert all(text[token.start : token.end] == token.text != "" for token in tokens)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a_1$ Ünï", [TokenKind.WORD, TokenKind.WORD]),
        ('"a""b" `c` [d e] []', [TokenKind.QUOTED] * 4),
        ("'it''s' x'00' X'ff'", [TokenKind.STRING, TokenKind.BLOB, TokenKind.BLOB]),
        ("1 1.5 .5 1e9 1E-3 0xFf 1_000", [TokenKind.NUMBER] * 7),
        ("a.b", [TokenKind.WORD, TokenKind.OPERATOR, TokenKind.WORD]),
        ("a->>'$.x'||b", [TokenKind.WORD, TokenKind.OPERATOR, TokenKind.STRING, TokenKind.OPERATOR, TokenKind.WORD]),
        ("? ?7 :a @b $c", [TokenKind.VARIABLE] * 5),
        ("a -- to the end ' \" ;", [TokenKind.WORD]),
        ("a /* ' -- \n */ b", [TokenKind.WORD, TokenKind.WORD]),
        ("a /* b", [TokenKind.WORD, TokenKind.UNFINISHED]),
        ("'a b", [TokenKind.UNFINISHED]),
        ("x::int", [TokenKind.WORD, TokenKind.OPERATOR, TokenKind.WORD]),
    ],
)
def test_a_token_is_what_its_spelling_says(text: str, kinds: list[TokenKind]) -> None:
    """Space and comments aside, each piece has its kind."""
    assert [token.kind for token in significant(text)] == kinds


def test_a_name_is_unquoted_and_a_keyword_is_a_bare_word() -> None:
    """Quoted words are never keywords, and their doubled quotes are single ones."""
    bare, quoted, text = significant("Select \"Sel\"\"ect\" 'select'")

    assert (bare.keyword, bare.name) == ("SELECT", "Select")
    assert (quoted.keyword, quoted.name) == ("", 'Sel"ect')
    assert (text.keyword, text.name) == ("", None)
    assert [unquote(one) for one in ("[a]]", "`a``b`", "'a''b'")] == ["a]", "a`b", "a'b"]


def test_names_are_the_same_when_only_ascii_letters_differ_in_case() -> None:
    """Other letters are not folded."""
    assert same_name("ABC", "abc")
    assert not same_name("Ä", "ä")


def test_spans_are_replaced_from_the_text_as_it_was() -> None:
    """Positions are those of the old text, in whatever order they are given."""
    assert replace_spans("one two three", [(8, 13, "3"), (0, 3, "1"), (4, 4, "and ")]) == "1 and two 3"
    with pytest.raises(AssertionError):
        replace_spans("abc", [(0, 2, "x"), (1, 3, "y")])


def test_an_operator_is_recognised_by_its_text_only_outside_quotes() -> None:
    """A quoted parenthesis is none."""
    assert Token(TokenKind.OPERATOR, "(", 0, 1).is_operator("(")
    assert not any(token.is_operator("(") for token in significant("'(' \"(\" [(]"))
