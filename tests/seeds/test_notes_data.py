"""Data sets, loaders and files in the notes: 002 (splitting, collating), 003 (a whole program; mean and deviation), 004 (samplers)."""

import functools

import numpy as np
import pytest
from notes_models import network

import flambeau as torch
import flambeau.nn
import flambeau.optim
import flambeau.utils.data

Image = pytest.importorskip("PIL.Image", reason="these notes read images: pip install pillow")


def test_files_are_split_into_training_and_test(tmp_path):
    random_split = torch.utils.data.random_split
    defects = [f"{i:04d}.jpg" for i in range(1776)]
    training_set, test_set = random_split(defects, [1243, 533], generator=torch.Generator().manual_seed(233))
    training = ["train/" + name for name in list(training_set)]
    test = ["test/" + name for name in list(test_set)]
    assert (len(training), len(test)) == (1243, 533)
    assert sorted(name.split("/")[1] for name in training + test) == defects
    (tmp_path / "train.txt").write_text("".join(name + "\n" for name in training))
    assert (tmp_path / "train.txt").read_text().splitlines() == training


def test_frames_are_halved():
    halves = torch.utils.data.random_split(range(10350), [5175, 5175], generator=torch.Generator().manual_seed(42))
    assert [len(h) for h in halves] == [5175, 5175]
    again = torch.utils.data.random_split(range(10350), [5175, 5175], generator=torch.Generator().manual_seed(42))
    assert list(halves[0]) == list(again[0])


def batches_class():
    class Batches(torch.utils.data.Dataset):
        """Samples that are batches already."""

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.full((3, 2), float(index))

    return Batches


def first_of(data):
    return data[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_made_by_the_data_set_are_not_batched_again(workers):
    loader = torch.utils.data.DataLoader(
        batches_class()(), batch_size=1, shuffle=True, num_workers=workers, collate_fn=first_of
    )
    batches = list(loader)
    assert all(b.shape == (3, 2) for b in batches)
    assert sorted(b[0, 0].item() for b in batches) == [0.0, 1.0, 2.0, 3.0]


def test_each_rank_reads_its_own_part():
    dataset, parts = batches_class()(), []
    for rank in range(2):
        sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=2, rank=rank)
        loader = torch.utils.data.DataLoader(dataset=dataset, batch_size=1, num_workers=0, sampler=sampler)
        parts.append([b[0, 0, 0].item() for b in loader])
    assert sorted(parts[0] + parts[1]) == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="mutually exclusive"):  # the notes give both
        torch.utils.data.DataLoader(dataset, shuffle=True, sampler=sampler)


def compute_mean_and_std(dataset):
    means = np.mean([np.asarray(image).mean((0, 1)) for image, _ in dataset], 0)
    squares = sum(((np.asarray(image) - means) ** 2).sum((0, 1)) for image, _ in dataset)
    count = sum(np.asarray(image)[:, :, 0].size for image, _ in dataset)
    return tuple(means / 255), tuple(np.sqrt(squares / count) / 255)


class Pictures:
    def __init__(self, count=4):
        generator = np.random.RandomState(0)
        self.images = [Image.fromarray(generator.randint(0, 255, (6, 5, 3), np.uint8)) for _ in range(count)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index


def test_mean_and_deviation_of_a_data_set():
    mean, deviation = compute_mean_and_std(Pictures())
    pixels = np.stack([np.asarray(image) for image in Pictures().images]) / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 1, 2)))
    np.testing.assert_allclose(deviation, pixels.std((0, 1, 2)))


def dataset_class():
    class MyDataset(torch.utils.data.Dataset):
        def __init__(self, data_txt_path):
            self.data_list = np.random.permutation(data_txt_path.read_text().splitlines())

        def __getitem__(self, index):
            image_path, label = self.data_list[index].split(" ")
            pixels = np.asarray(Image.open(image_path))
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, int(label)

        def __len__(self):
            return len(self.data_list)

    return MyDataset


def test_model_data_training_and_test_in_one_program(tmp_path):
    MyNetwork, MyDataset = functools.partial(network(torch.nn), channels=8, side=4, classes=2), dataset_class()
    generator = np.random.RandomState(0)
    lines = []
    for i in range(12):
        path, label = tmp_path / f"{i}.png", i % 2
        Image.fromarray((generator.randint(0, 100, (8, 8, 3)) + 150 * label).astype(np.uint8)).save(path)
        lines.append(f"{path} {label}")
    (tmp_path / "data.txt").write_text("\n".join(lines))
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(MyDataset(tmp_path / "data.txt"), 4, True, num_workers=0)
    pretrained = MyNetwork().state_dict()
    del pretrained["fc.bias"]
    torch.save(pretrained, tmp_path / "ckpt.pth")

    device = torch.device("cpu")
    model = MyNetwork()
    model.load_state_dict(torch.load(tmp_path / "ckpt.pth"), strict=False)
    criterion = torch.nn.CrossEntropyLoss()
    model.to(device)
    model = torch.nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, weight_decay=1e-4)
    model.train()
    for epoch in range(8):
        for step, (data_input, label) in enumerate(loader):
            output = model(data_input.to(device))
            loss = criterion(output, label.to(device).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (epoch * len(loader) + step) % 6 == 0:
                torch.save(model.state_dict(), tmp_path / "snapshot.pth")
    assert loss.item() < 0.3
    torch.save(model.state_dict(), tmp_path / "snapshot.pth")

    tested = torch.nn.DataParallel(MyNetwork())
    tested.load_state_dict(torch.load(tmp_path / "snapshot.pth"))
    tested.eval()
    right = 0
    for line in lines:
        path, label = line.split(" ")
        data = torch.from_numpy(np.asarray(Image.open(path)).copy()).permute(2, 0, 1)[None].float() / 255
        right += tested(data.to(device)).argmax(1).item() == int(label)
    assert right == 12
