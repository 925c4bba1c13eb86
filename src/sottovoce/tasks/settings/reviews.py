"""Sentiment of film reviews, learnt from scratch, with short reviews of another kind as public data."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch

from sottovoce.losses import cross_entropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data, text_models, words
from sottovoce.tasks.data.permutation import order
from sottovoce.tasks.naming import require_choice, require_counts
from sottovoce.tasks.settings.grids import REVIEWS
from sottovoce.tasks.settings.setting import Examples, Setting
from sottovoce.tasks.settings.slices import limited, require_size
from sottovoce.tasks.settings.tensors import first

PublicReviews = Literal["amazon-snippets", "rotten-tomatoes", "both", "amazon-polarity"]
"""Whose public records: sentences of product reviews, of film reviews, of both, or whole product reviews."""

_SENTENCES = ("amazon-snippets", "rotten-tomatoes")
_POLARITY = "amazon-polarity"


def imdb(
    *,
    seed: int,
    limit: int | None,
    public: PublicReviews = "amazon-snippets",
    numbering: Literal["counted", "hashed"] = "counted",
    vocabulary: int = 10_000,
    length: int = 128,
    embedding: int = 64,
    hidden: int = 64,
    dropout: float = 0.2,
    always_dropout: bool = False,
    public_records: int | None = None,
    validation_records: int = 2_000,
) -> Setting:
    """IMDB reviews with an LSTM; sentences of reviews are public.

    Words are numbered by their frequency in PUBLIC text alone, both corpora of sentences together: a vocabulary counted
    on IMDB would be a release. It has 10,000 words, which are 90 % of IMDB's tokens. The product sentences alone have
    4,486 words and 77 % of them; ``numbering="hashed"`` covers all, but words collide.

    Args:
        seed: of the slices.
        limit: at most so many private records.
        public: the public corpus.
        numbering: ``"counted"`` on public text, or ``"hashed"``.
        vocabulary: the number of word numbers.
        length: words of a review that are read; the rest is cut off.
        embedding: the length of a word's vector.
        hidden: the length of the LSTM's state.
        dropout: the rate before the last layer, in training mode only.
        always_dropout: in evaluation mode too, as the paper's code has it: a control.
        public_records: so many public records, chosen by the public permutation; all by default, and 2,000, the
            paper's number, of amazon-polarity.
        validation_records: the size of the validation part.
    """
    require_choice("public", public, get_args(PublicReviews))
    require_choice("numbering", numbering, ("counted", "hashed"))
    require_counts(vocabulary=vocabulary, length=length)
    require_size("validation_records", validation_records)
    if vocabulary < 3:
        raise ConfigurationError(f"vocabulary={vocabulary}: at least 3, as padding and unknown words have numbers too.")

    def make_model(seed: int) -> torch.nn.Module:
        return text_models.lstm(
            vocabulary=vocabulary,
            classes=2,
            seed=seed,
            embedding=embedding,
            hidden=hidden,
            dropout=dropout,
            always_dropout=always_dropout,
        )

    make_model(0)  # wrong options are told before data is read
    texts, labels = _public(public, public_records, seed)
    reviews = data.load_texts("imdb")
    if numbering == "hashed":
        number = words.hashed(vocabulary)
    else:
        number = words.counted(texts if public == _POLARITY else _public("both", None, seed)[0], vocabulary)
    left = order(f"imdb-slices-{seed}", len(reviews.train_labels))
    kept, private = left[:validation_records], left[validation_records:]
    if not private:
        raise ConfigurationError(
            f"validation_records={validation_records}: imdb has {len(left)} training records, and some must be private."
        )

    def rows(numbers: list[int]) -> Examples:
        chosen = [reviews.train_texts[record][0] for record in numbers]
        return words.padded(chosen, number, length), torch.from_numpy(reviews.train_labels[np.asarray(numbers)])

    shown = words.padded(texts, number, length), labels
    return Setting(
        name="imdb",
        title="IMDB film reviews, LSTM from scratch",
        paper=_PAPER[public == _POLARITY],
        private=rows(limited(private, limit)),
        public=shown,
        validation=rows(kept),
        test=(
            words.padded([text for (text,) in reviews.test_texts], number, length),
            torch.from_numpy(reviews.test_labels.copy()),
        ),
        make_model=make_model,
        loss=cross_entropy,
        example=first(shown),
        steps=600,
        batch_size=64,
        grids=REVIEWS,
    )


def amazon_polarity(
    *,
    seed: int,
    limit: int | None,
    vocabulary: int = 10_000,
    length: int = 128,
    embedding: int = 64,
    hidden: int = 64,
    dropout: float = 0.2,
    always_dropout: bool = False,
    public_records: int | None = None,
    validation_records: int = 2_000,
) -> Setting:
    """IMDB with the paper's own public side, 2,000 reviews of Amazon Polarity, where a user has that corpus."""
    found = imdb(
        seed=seed,
        limit=limit,
        public="amazon-polarity",
        vocabulary=vocabulary,
        length=length,
        embedding=embedding,
        hidden=hidden,
        dropout=dropout,
        always_dropout=always_dropout,
        public_records=public_records,
        validation_records=validation_records,
    )
    return replace(found, name="amazon-polarity", title=f"{found.title}, Amazon Polarity public")


_PAPER = {
    False: "IMDB with an LSTM from scratch: the paper's own private data; its public side is Amazon Polarity, for "
    "which sentences of other reviews stand in, which are far shorter",
    True: "IMDB with an LSTM from scratch and Amazon Polarity public: the paper's own data on both sides",
}


def _public(name: PublicReviews, count: int | None, seed: int) -> tuple[list[str], torch.Tensor]:
    """The public reviews and their labels, in the order of a public permutation."""
    corpora = [data.load_texts(corpus) for corpus in (_SENTENCES if name == "both" else (name,))]
    texts = [record for corpus in corpora for record in corpus.train_texts]
    labels = np.concatenate([corpus.train_labels for corpus in corpora])
    if count is None:
        count = min(2_000, len(texts)) if name == _POLARITY else len(texts)
    require_size("public_records", count)
    if count > len(texts):
        raise ConfigurationError(f"public_records={count}: {name} has {len(texts)} records.")
    chosen = order(f"{name}-slices-{seed}", len(texts))[:count]
    return [" ".join(texts[number]) for number in chosen], torch.from_numpy(labels[np.asarray(chosen)])
