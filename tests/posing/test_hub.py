"""flambeau.hub: repositories and weights from a cache or local files, without a network."""

from __future__ import annotations

import hashlib
from urllib.error import URLError

import pytest

import flambeau
from flambeau import hub

HUBCONF = """
import flambeau
from parts_of_hub_test import width
dependencies = ["numpy"]

def small(out_features=2, **kwargs):
    "A linear layer."
    return flambeau.nn.Linear(width, out_features, **kwargs)

def _hidden():
    pass

number = 3
"""


@pytest.fixture
def repository(tmp_path):
    directory = tmp_path / "repository"
    directory.mkdir()
    (directory / "hubconf.py").write_text(HUBCONF)
    (directory / "parts_of_hub_test.py").write_text("width = 3\n")
    return directory


@pytest.fixture
def cache(tmp_path):
    before = list(hub._chosen_dir)
    hub.set_dir(tmp_path / "hub")
    yield tmp_path / "hub"
    hub._chosen_dir[:] = before


def test_local_repository(repository):
    model = hub.load(str(repository), "small", 5, source="local", bias=False)
    assert model.weight.shape == (5, 3) and model.bias is None
    assert hub.list(str(repository), source="local") == ["small"]
    assert hub.help(str(repository), "small", source="local") == "A linear layer."


def test_errors_of_repositories(repository, cache, tmp_path):
    with pytest.raises(RuntimeError, match="Cannot find callable large in hubconf"):
        hub.load(str(repository), "large", source="local")
    with pytest.raises(ValueError, match='Unknown source: "gitlab"'):
        hub.load(str(repository), "small", source="gitlab")
    with pytest.raises(FileNotFoundError, match="hubconf.py"):
        hub.load(str(tmp_path), "small", source="local")
    with pytest.raises(ValueError, match="owner/name"):
        hub.load("justaname", "small", trust_repo=True)
    (repository / "hubconf.py").write_text("dependencies = ['no_such_package_of_hub_test']\ndef small(): pass\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_of_hub_test"):
        hub.load(str(repository), "small", source="local")


def test_cached_repository(repository, cache, monkeypatch, capsys):
    cache.mkdir()
    repository.rename(cache / "somebody_models_master")
    assert hub.load("somebody/models", "small", trust_repo=True).in_features == 3
    assert "Using cache found in" in capsys.readouterr().err
    assert (cache / "trusted_list").read_text() == "somebody_models\n"
    assert hub.list("somebody/models:master", verbose=False) == ["small"]  # trusted by now: does not ask
    monkeypatch.setattr("builtins.input", lambda question: "n")
    with pytest.raises(RuntimeError, match="Untrusted repository: other/models"):
        hub.load("other/models", "small")


def test_download_that_fails_says_what_was_fetched(cache, monkeypatch):
    def unreachable(request):
        raise URLError("no network")

    monkeypatch.setattr(hub, "urlopen", unreachable)
    with pytest.raises(RuntimeError, match="pytorch/vision:v0 is not in the cache .* no network"):
        hub.load("pytorch/vision:v0", "resnet18")
    with pytest.raises(URLError, match="no network .while fetching https://example.org/a.pth"):
        hub.load_state_dict_from_url("https://example.org/a.pth")


def test_state_dict_from_url(cache, tmp_path, capsys):
    model = flambeau.nn.Linear(2, 2)
    flambeau.save(model.state_dict(), tmp_path / "plain.pth")
    digest = hashlib.sha256((tmp_path / "plain.pth").read_bytes()).hexdigest()
    named = tmp_path / f"weights-{digest[:8]}.pth"
    (tmp_path / "plain.pth").rename(named)
    state = hub.load_state_dict_from_url(named.as_uri(), check_hash=True)
    assert flambeau.equal(state["weight"], model.weight)
    assert "Downloading" in capsys.readouterr().out
    named.unlink()  # the second time it comes from the cache
    assert list(hub.load_state_dict_from_url(named.as_uri())) == ["weight", "bias"]
    assert capsys.readouterr().out == ""
    assert (cache / "checkpoints" / named.name).exists()


def test_wrong_hash_leaves_nothing(tmp_path):
    (tmp_path / "source").write_bytes(b"contents")
    url = (tmp_path / "source").as_uri()
    with pytest.raises(RuntimeError, match='invalid hash value .expected "00", got "d1b2'):
        hub.download_url_to_file(url, str(tmp_path / "copy"), hash_prefix="00", progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]
    hub.download_url_to_file(url, str(tmp_path / "copy"), hash_prefix="d1b2")
    assert (tmp_path / "copy").read_bytes() == b"contents"


def test_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "_chosen_dir", [])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")


def test_bar_of_programs_without_tqdm(capsys):
    from flambeau.utils.progress import PlainBar

    with PlainBar(total=3, desc="steps", unit="B") as bar:
        bar.update(2)
        bar.set_postfix({"loss": 1}, rate=2)
    assert bar.done == 2 and bar.note == "loss=1, rate=2"
    assert list(hub.tqdm([1, 2], desc="all", disable=True)) == [1, 2]


def test_names_that_other_packages_import():
    assert hub.HASH_REGEX.search("resnet18-f37072fd.pth")[1] == "f37072fd"
    assert type(None) in flambeau.serialization.MAP_LOCATION.__args__
