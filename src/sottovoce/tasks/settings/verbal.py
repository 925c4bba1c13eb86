"""Sentiment of reviews by a small causal language model that is asked for the next word, tuned in small parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import nn

from sottovoce.losses import cross_entropy
from sottovoce.privacy.errors import ConfigurationError, DataError
from sottovoce.tasks import data
from sottovoce.tasks.byte_pairs import BytePairs
from sottovoce.tasks.data.permutation import order
from sottovoce.tasks.drawing import drawn
from sottovoce.tasks.gguf import GgufFile
from sottovoce.tasks.llama import Llama, Shape
from sottovoce.tasks.llama_weights import is_learnt, load_weights
from sottovoce.tasks.naming import require_choice, require_counts
from sottovoce.tasks.settings.corpora import Corpora, Pairs, Shift, Sizes
from sottovoce.tasks.settings.grids import PROMPT
from sottovoce.tasks.settings.setting import Examples, Setting
from sottovoce.tasks.settings.slices import limited, require_size
from sottovoce.tasks.settings.tensors import first
from sottovoce.tasks.verbalizer import Read, Template, Verbalizer, split, tokens_of

VerbalTune = Literal["prompt", "lora"]
"""What is trained: vectors before each text, or changes of low rank in every layer's attention."""

_START = "Is this review positive or negative?\n"
"""What the soft prompt says before it is trained, chosen on public snippets."""

_JITTER = 0.1
"""The soft prompt starts as far from those words, in deviations of a vector's entries, so that seeds differ."""

_MOST_PRIVATE = 20_000
_PUBLIC = "amazon-snippets"


def verbalizer(
    *,
    seed: int,
    limit: int | None,
    private: Literal["imdb", "rotten-tomatoes"] = "imdb",
    shift: Shift = "full",
    tune: VerbalTune = "prompt",
    prompt: int = 8,
    rank: int = 4,
    template: str = "Review: {text}\nSentiment:",
    words: Sequence[str] = (" negative", " positive"),
    read: Read = "end",
    length: int = 64,
    private_records: int | None = None,
    public_records: int = 1_000,
    validation_records: int = 200,
    test_records: int = 400,
) -> Setting:
    """Reviews in a template, scored by the logits of two words as the next one (SmolLM2-135M-Instruct).

    The model is above chance before any training. A run is short, as a step takes seconds.

    Args:
        seed: of the slices.
        limit: at most so many private records.
        private: the private corpus; sentences of product reviews are public.
        shift: where the public records come from.
        tune: what is trained; the model itself stays as it is.
        prompt: the vectors of the soft prompt, for ``tune="prompt"``.
        rank: of the changes, for ``tune="lora"``.
        template: with ``{text}`` in it once.
        words: of the negative and of the positive class, each one token.
        read: the part of a long review that is read; film reviews judge at their end.
        length: tokens of a row, with the template and without the soft prompt.
        private_records: the size of the private part before ``limit``; 20,000 or all that are left by default.
        public_records: the size of the public part, with equal classes.
        validation_records: the size of the validation part.
        test_records: the size of the test part.
    """
    require_choice("private", private, ("imdb", "rotten-tomatoes"))
    require_choice("tune", tune, get_args(VerbalTune))
    require_choice("read", read, get_args(Read))
    require_counts(prompt=prompt, rank=rank, length=length)
    split(template)
    for name, size in (("public", public_records), ("validation", validation_records), ("test", test_records)):
        require_size(f"{name}_records", size)  # wrong options are told before data is read
    parts = _parts(
        Corpora(private, _PUBLIC, shift, seed), private_records, public_records, validation_records, test_records
    )
    (weights,) = (file for file in data.weights("smollm2").values() if file.suffix == ".gguf")
    file = GgufFile(weights)
    tokenizer, shape = BytePairs.of(file.metadata), Shape.of(file.metadata)
    padding = file.metadata.get("tokenizer.ggml.padding_token_id")
    if not isinstance(padding, int) or not 0 <= padding < shape.vocabulary:
        raise DataError(f"{weights}: its padding token is {padding!r}.")
    numbers = tokens_of(words, tokenizer)
    if len(numbers) != 2:
        raise ConfigurationError(f"words={words!r}: reviews are of two classes, negative and positive.")
    rows = Template(template, tokenizer, length=length, read=read, padding=padding)
    start = torch.tensor(tokenizer.encode(_START))

    def examples(part: Pairs) -> Examples:
        return rows.rows([text.replace("<br />", " ") for (text,) in part.sentences]), part.targets

    def make_model(seed: int) -> nn.Module:
        model = drawn(
            seed, lambda: Llama(shape, prompt=prompt if tune == "prompt" else 0, rank=rank if tune == "lora" else 0)
        )
        assert isinstance(model, Llama)
        load_weights(model, file)
        model.embeddings.begin(start, _JITTER)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(is_learnt(name))
        return Verbalizer(model, numbers, padding).eval()

    own = parts["private"]
    count = len(limited(list(range(len(own.sentences))), limit))
    public = examples(parts["public"])
    return Setting(
        name="verbalizer",
        title=f"Sentiment of {private} by the next word, SmolLM2-135M, tuning the {tune}",
        paper="stand-in for prompts with RoBERTa-base on MNLI: a causal language model and reviews, as neither can be "
        "had from a package registry. Caution: the model's own training text is not known and may hold these reviews; "
        "the guarantee covers the tuning alone",
        private=examples(Pairs(own.sentences[:count], own.targets[:count])),
        public=public,
        validation=examples(parts["validation"]),
        test=examples(parts["test"]),
        make_model=make_model,
        loss=cross_entropy,
        example=first(public),
        steps=20,
        batch_size=16,
        grids=PROMPT,
    )


def _parts(corpora: Corpora, private: int | None, public: int, validation: int, test: int) -> dict[str, Pairs]:
    """As :class:`Corpora` cuts them, but a corpus's own test part is chosen by a public permutation too."""
    own = data.load_texts(corpora.private)
    if private is None:
        left = len(own.train_texts) - public - validation - (0 if own.test_texts else test)
        private = min(_MOST_PRIVATE, max(1, left))
    parts = corpora.cut(Sizes(private, public, validation, test))
    if own.test_texts:
        chosen = order(f"{corpora.private}-test-slices-{corpora.seed}", len(own.test_texts))[:test]
        parts["test"] = Pairs.of(own.test_texts, own.test_labels, chosen)
    return parts
