"""Does a sentence follow from another? By a pretrained encoder of sentences, frozen or tuned in small parts."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn

from sottovoce.losses import cross_entropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data
from sottovoce.tasks.heads import Standardised, head, stacked
from sottovoce.tasks.naming import require_choice, require_counts
from sottovoce.tasks.settings.corpora import Corpora, Shift, Sizes
from sottovoce.tasks.settings.grids import FEATURES, WHOLE_NETWORK
from sottovoce.tasks.settings.pair_encoder import Encoder, Tune
from sottovoce.tasks.settings.setting import Examples, Setting
from sottovoce.tasks.settings.slices import limited
from sottovoce.tasks.settings.tensors import first
from sottovoce.tasks.wordpiece import WordPiece

_CONTAMINATED = (
    "all-MiniLM-L6-v2 was itself trained on SNLI and MultiNLI, so it has seen parts of these records: the guarantee "
    "covers the fine-tuning alone, and accuracies are those of a model that knew"
)


def nli(
    *,
    seed: int,
    limit: int | None,
    private: Literal["snli", "vitaminc"] = "snli",
    shift: Shift = "full",
    features: bool = True,
    tune: Tune = "head",
    hidden: int = 64,
    dropout: float = 0.0,
    always_dropout: bool = False,
    length: int = 48,
    private_records: int = 20_000,
    public_records: int = 1_500,
    validation_records: int = 2_000,
    test_records: int = 5_000,
) -> Setting:
    """Inference on SNLI with VitaminC public, or the other way round, by MiniLM.

    Args:
        seed: of the slices.
        limit: at most so many private records; features are computed for ``private_records`` all the same.
        private: the private corpus; the other one is public.
        shift: where the public records come from.
        features: train a head on the encoder's vectors, computed once and cached; or keep the encoder in the model.
        tune: what is trained beside the head if ``features=False``.
        hidden: hidden units of the head, 0 for a linear one.
        dropout: the rate before the last layer, in training mode only.
        always_dropout: in evaluation mode too, as the paper's code has it: a control.
        length: pieces of words of each sentence that are read.
        private_records: the size of the private part before ``limit``.
        public_records: the size of the public part, with equal classes.
        validation_records: the size of the validation part.
        test_records: the size of the test part.
    """
    require_choice("private", private, ("snli", "vitaminc"))
    found = Corpora(private, "vitaminc" if private == "snli" else "snli", shift, seed)
    return _setting(
        found,
        name="nli",
        title=f"Inference on {private}, {found.shown_public} public, MiniLM",
        paper="stand-in for MNLI with SNLI public, by prompts and RoBERTa-base: MNLI and RoBERTa's weights cannot be "
        f"had from a package registry. Caution: {_CONTAMINATED}",
        limit=limit,
        features=features,
        tune=tune,
        hidden=hidden,
        dropout=dropout,
        always_dropout=always_dropout,
        length=length,
        sizes=Sizes(private_records, public_records, validation_records, test_records),
    )


def mnli(
    *,
    seed: int,
    limit: int | None,
    shift: Shift = "full",
    features: bool = True,
    tune: Tune = "head",
    hidden: int = 64,
    dropout: float = 0.0,
    always_dropout: bool = False,
    length: int = 48,
    private_records: int = 1_536,
    public_records: int = 300,
    validation_records: int = 1_536,
    test_records: int = 5_000,
) -> Setting:
    """MNLI with SNLI public, where a user has MNLI: 512 private and 100 public records of each class, as in the paper.

    The arguments are those of :func:`nli`.
    """
    found = Corpora("mnli", "snli", shift, seed)
    return _setting(
        found,
        name="mnli",
        title=f"Inference on MNLI, {found.shown_public} public, MiniLM",
        paper="MNLI with SNLI public: the paper's own data and sizes; its model is RoBERTa-base with a prompt, this "
        f"one a sentence encoder. Caution: {_CONTAMINATED}",
        limit=limit,
        features=features,
        tune=tune,
        hidden=hidden,
        dropout=dropout,
        always_dropout=always_dropout,
        length=length,
        sizes=Sizes(private_records, public_records, validation_records, test_records),
    )


def _setting(
    corpora: Corpora,
    *,
    name: str,
    title: str,
    paper: str,
    limit: int | None,
    features: bool,
    tune: Tune,
    hidden: int,
    dropout: float,
    always_dropout: bool,
    length: int,
    sizes: Sizes,
) -> Setting:
    require_choice("tune", tune, get_args(Tune))
    require_counts(length=length)
    if length < 3:
        raise ConfigurationError(f"length={length}: at least 3, as a start and an end are put around each sentence.")
    if features and tune != "head":
        raise ConfigurationError(f"tune={tune!r} changes the encoder: give features=False.")

    def make_head(width: int, seed: int) -> nn.Module:
        return head(inputs=width, classes=3, hidden=hidden, dropout=dropout, always_dropout=always_dropout, seed=seed)

    make_head(1, 0)  # wrong options are told before data is read
    parts = corpora.cut(sizes)
    files = data.weights("minilm")
    pieces = WordPiece.read(files["vocab.txt"])
    encoder = Encoder(files, length, pieces)
    scaling = Standardised(encoder.features(f"{name}-public", parts["public"]))
    width = len(scaling.mean)

    def rows(part: str) -> Examples:
        pairs = parts[part]
        if features:
            return scaling(encoder.features(f"{name}-{part}", pairs)), pairs.targets
        return encoder.pieces(pairs), pairs.targets

    def make_model(seed: int) -> nn.Module:
        top = make_head(width, seed)
        return top if features else stacked(body=encoder.network(tune, seed), standardised=scaling, head=top)

    private, public = rows("private"), rows("public")
    kept = torch.tensor(limited(list(range(len(private[1]))), limit))
    return Setting(
        name=name,
        title=f"{title}: " + ("head on frozen features" if features else f"whole encoder, tuning the {tune}"),
        paper=paper,
        private=(private[0][kept], private[1][kept]),
        public=public,
        validation=rows("validation"),
        test=rows("test"),
        make_model=make_model,
        loss=cross_entropy,
        example=first(public),
        steps=600 if features else 15,
        batch_size=256 if features else 64,
        grids=FEATURES if features else WHOLE_NETWORK,
    )
