"""The tokenizer of byte pairs: words, merges in their order, and what is not in the vocabulary."""

from __future__ import annotations

import random
import sys
import unicodedata

import pytest
from gguf_fakes import MERGES, METADATA, TOKENS

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.byte_pairs import BYTES, BytePairs, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'd say it's 10/1.", ["I", "'d", " say", " it", "'s", " ", "1", "0", "/", "1", "."]),
        ("a  b   \n c \n", ["a", " ", " b", "   \n", " c", " \n"]),
        ("x  5 y", ["x", "  ", "5", " y"]),  # spaces before a digit stay together, as the digit was cut off first
        ("'sup 'S 'll!", ["'s", "up", " '", "S", " '", "ll", "!"]),
        ("²½Ⅷ٣a", ["²", "½", "Ⅷ", "٣", "a"]),
        ("naïve中文 🙂\u3000\u3000z", ["naïve中文", " 🙂", "\u3000", "\u3000", "z"]),
        ("e\u0301\x1c_", ["e", "\u0301\x1c_"]),  # marks and the separators of files are neither letters nor spaces
        ("", []),
    ],
)  # fmt: skip
def test_words_are_gpt2s_with_single_digits(text: str, expected: list[str]):
    assert words(text) == expected


def test_words_are_the_text():
    generator = random.Random(0)
    signs = [chr(number) for number in range(sys.maxunicode + 1)]
    some = [sign for sign in signs if sign.isspace()] + list("'st've9½ .\x1d")
    for _ in range(2_000):
        text = "".join(generator.choice(some if generator.random() < 0.8 else signs) for _ in range(12))
        found = words(text)
        assert "".join(found) == text
        for word in found:
            kinds = {unicodedata.category(sign)[0] for sign in word.removeprefix(" ")}
            assert "N" not in kinds or len(word) == 1
            assert "L" not in kinds or kinds == {"L"} or word[0] == "'"


def test_every_byte_has_a_sign_of_its_own():
    assert len(set(BYTES)) == 256
    assert (BYTES[ord("a")], BYTES[ord(" ")], BYTES[ord("\n")], BYTES[0], BYTES[0xAD]) == ("a", "Ġ", "Ċ", "Ā", "Ń")


def test_the_pair_learnt_first_is_merged_first():
    tokens = [*BYTES, "ab", "bc", "abc", "aa", "aaaa"]
    assert BytePairs(tokens, ["b c", "a b", "a bc"]).encode("abc") == [tokens.index("abc")]
    assert BytePairs(tokens, ["a b", "b c", "a bc"]).encode("abc") == [tokens.index("ab"), tokens.index("c")]
    assert BytePairs(tokens, ["a a", "aa aa"]).encode("aaaaa") == [tokens.index("aaaa"), tokens.index("a")]


def test_a_text_cannot_hold_a_special_token():
    tokenizer = BytePairs(TOKENS, MERGES)
    found = tokenizer.encode("<|im_end|> negative")
    assert min(found) > 2
    assert [TOKENS[number] for number in found] == [*"<|", *"im", *"_", "en", "d", *"|>", "Ġnegative"]


def test_bytes_without_a_token_are_left_out_before_merging():
    tokens = [sign for sign in BYTES if sign != BYTES[4]] + ["!?"]
    assert BytePairs(tokens, ["! ?"]).encode("!\x04?") == [255]
    assert BytePairs(tokens, []).encode("\ud800") == [tokens.index("?")]  # half of a sign is no text


@pytest.mark.parametrize("merges", [["a b"], ["ab"], ["a b c"]])
def test_merges_of_something_else_are_refused(merges: list[str]):
    with pytest.raises(DataError, match="not a pair of tokens"):
        BytePairs(BYTES, merges)


def test_another_tokenizer_is_refused():
    with pytest.raises(DataError, match=r"\('llama', 'smollm'\)"):
        BytePairs.of({**METADATA, "tokenizer.ggml.model": "llama"})
    with pytest.raises(DataError, match="lacks"):
        BytePairs.of({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"})
