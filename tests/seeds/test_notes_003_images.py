"""Programs of the fourth notes file (and one line of the first) on data sets, image files and shards of checkpoints.

`torchvision` is `flambeau.vision` under Flambeau; downloads are replaced by small files of the same layout."""

from __future__ import annotations

import importlib
import importlib.util
import struct

import numpy as np
import pytest

import flambeau as torch
import flambeau.utils.data as Data
from flambeau import nn

Image = pytest.importorskip("PIL.Image", reason="reads and writes images: pip install pillow")


@pytest.fixture
def digits(tmp_path):
    """MNIST's four files, with 256 images instead of 70,000."""
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for part, count in (("train", 200), ("t10k", 56)):
        images, labels = random.randint(0, 256, (count, 28, 28)), random.randint(0, 10, count)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + images.astype("u1").tobytes()
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">4BI", 0, 0, 8, 1, count) + labels.astype("u1").tobytes()
        )
    return str(tmp_path)


def to_tensor(image):
    """What transforms.ToTensor() does to a grey image."""
    return torch.from_numpy(np.array(image, dtype=np.float32))[None] / 255


def test_mnist_in_a_loader_and_as_a_grid(vision, digits):
    torch.manual_seed(0)
    train_data = vision("datasets").MNIST(root=digits, train=True, transform=to_tensor, download=False)
    train_loader = Data.DataLoader(dataset=train_data, batch_size=128, shuffle=True, num_workers=0)
    test_data = vision("datasets").MNIST(root=digits, train=False, download=False)

    test_data_x = test_data.data.type(torch.FloatTensor) / 255.0
    test_data_x = torch.unsqueeze(test_data_x, dim=1)
    test_data_y = test_data.targets
    assert test_data_x.shape == (56, 1, 28, 28) and test_data_y.shape == (56,)
    assert test_data_x.max().item() == 1.0 and test_data_y.dtype == torch.int64

    for x, y in train_loader:
        assert x.shape == (128, 1, 28, 28) and y.shape == (128,)
        break
    img = vision("utils").make_grid(x, nrow=12)
    assert img.shape == (3, 11 * 30 + 2, 12 * 30 + 2)  # what the notes hand to TensorBoard
    assert torch.equal(img[0, 2:30, 2:30], x[0, 0])


class My_Dataset(Data.Dataset):
    """Pairs of a path and a label in a text file, in random order."""

    def __init__(self, data_txt_path, read_image):
        with open(data_txt_path) as file:
            data_list = file.read().splitlines()
        self.data_list = np.random.permutation(data_list)
        self.read_image = read_image

    def __getitem__(self, index):
        sample = self.data_list[index]
        image_path = sample.split(" ")[0]
        label = int(sample.split(" ")[-1])
        return self.read_image(image_path).float() / 255, label

    def __len__(self):
        return len(self.data_list)


def test_own_dataset_of_image_files(library, tmp_path):
    lines = []
    for label in range(6):
        path = tmp_path / f"{label}.png"
        Image.fromarray(np.full((4, 5, 3), 40 * label, np.uint8)).save(path)
        lines.append(f"{path} {label}")
    (tmp_path / "list.txt").write_text("\n".join(lines))
    if library == "flambeau":
        read_image = importlib.import_module("flambeau.vision.io").read_image
    else:
        read_image = lambda path: torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)  # noqa: E731
    np.random.seed(0)
    for images, labels in Data.DataLoader(My_Dataset(tmp_path / "list.txt", read_image), 3):
        assert images.shape == (3, 3, 4, 5)
        assert torch.allclose(images[:, 0, 0, 0], labels * 40 / 255)


def test_each_shard_is_a_dictionary_of_its_own(library, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    state = model.state_dict()
    if library == "flambeau":
        importlib.import_module("flambeau.serialization").save_sharded(state, ".", 100, safe_serialization=False)
    else:
        names = list(state)
        torch.save({n: state[n] for n in names[:2]}, "pytorch_model-00001-of-00002.bin")
        torch.save({n: state[n] for n in names[2:]}, "pytorch_model-00002-of-00002.bin")
    first = torch.load("pytorch_model-00001-of-00002.bin")
    second = torch.load("pytorch_model-00002-of-00002.bin")
    assert isinstance(first, dict) and set(first).isdisjoint(second)
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    other.load_state_dict({**first, **second})
    assert all(torch.equal(other.state_dict()[n], state[n]) for n in state)
