"""The reference: every class and function has its page, with meanings for its parameters and examples that print what they say."""

from __future__ import annotations

import re
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

import flambeau

TOOLS = Path(__file__).parents[2] / "docs" / "_tools"
sys.path.insert(0, str(TOOLS))
pytest.importorskip("pygments", reason="the pages' code is coloured by Pygments")
import entry  # noqa: E402
import parameters  # noqa: E402
import reference  # noqa: E402
import seen  # noqa: E402
import shapes  # noqa: E402
import snippets  # noqa: E402

# The namespaces whose pages are complete: meanings for all parameters.
CORE = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler",
    "torch.linalg", "torch.fft", "torch.special", "torch.autograd", "torch.func",
)  # fmt: skip


@cache
def names() -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {f"{space}.{name}": value for space, name, value in reference.entries()}


def core() -> dict[str, object]:
    return {n: v for n, v in names().items() if n.rpartition(".")[0] in CORE and callable(v)}


@pytest.fixture(autouse=True)
def _folder_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flambeau.hub, "_chosen_dir", [])  # examples choose another


@pytest.mark.parametrize("name", snippets.snippets())
def test_example_prints_what_it_says_and_its_shapes_are_told(name: str) -> None:
    reason = snippets.why_not(name, flambeau)
    if reason:
        pytest.skip(reason)
    assert name in names()
    printed, told = seen.run(name, reference.find(name))
    assert printed == [answer for _, answer in snippets.snippets()[name]]
    assert seen.written().get(name, "") == (told if seen.is_run(name) else ""), (
        "write them again: python docs/_tools/seen.py"
    )


def test_shapes_are_told_of_examples_that_exist() -> None:
    assert list(seen.written()) == [name for name in snippets.snippets() if name in seen.written()]


def test_lines_behind_dots_belong_to_the_line_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@ torch.jit.script\n>>> @torch.jit.script\n... def twice(x):\n...     return 2 * x\n>>> twice(torch.ones(1))\ntensor([2.])\n"
    monkeypatch.setattr(snippets, "FILE", tmp_path / "snippets.txt")
    snippets.FILE.write_text(text)
    found = snippets._read.__wrapped__()[1]
    monkeypatch.setattr(snippets, "snippets", lambda: found)
    typed, printed = zip(*found["torch.jit.script"])
    assert typed == ("@torch.jit.script\ndef twice(x):\n    return 2 * x", "twice(torch.ones(1))")
    assert snippets.printed("torch.jit.script", flambeau) == list(printed) == ["", "tensor([2.])\n"]
    assert "@ torch.jit.script\n" + snippets.shown(found["torch.jit.script"]) == text


def test_line_may_raise_only_where_its_text_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = "Traceback (most recent call last):\n  ...\nRuntimeError: size is wrong\n"
    typed = "raise RuntimeError('size is wrong')"
    monkeypatch.setattr(snippets, "snippets", lambda: {"torch.zeros": [(typed, raised)]})
    assert snippets.printed("torch.zeros", flambeau) == [raised]
    monkeypatch.setattr(snippets, "snippets", lambda: {"torch.zeros": [(typed, "")]})
    with pytest.raises(RuntimeError, match="size is wrong"):
        snippets.printed("torch.zeros", flambeau)


def test_marks_say_where_an_example_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snippets, "FILE", tmp_path / "snippets.txt")
    snippets.FILE.write_text("@ torch.a (GPU)\n>>> 1\n1\n\n@ torch.b (flambeau)\n>>> 1\n1\n\n@ torch.c\n>>> 1\n1\n")
    read = snippets._read.__wrapped__
    monkeypatch.setattr(snippets, "_read", read)
    assert [snippets.mark(name) for name in snippets.snippets()] == ["GPU", "flambeau", ""]
    reasons = [snippets.why_not(name, flambeau) for name in snippets.snippets()]
    assert reasons == ["" if flambeau.cuda.is_available() else "needs a GPU", "", ""]
    snippets.FILE.write_text("@ torch.a (CPU)\n>>> 1\n1\n")
    with pytest.raises(ValueError, match="none of"):
        read()


def test_few_examples_are_run_nowhere() -> None:
    names = [name for name in snippets.snippets() if snippets.mark(name) == "compiler"]
    assert 0 < len(names) < 5
    for name in names:
        assert "the tests do not run it" in entry.page(*name.rpartition(".")[::2], reference.find(name), "index.html")


def test_shapes_are_seen_of_classes_that_an_example_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "class Half(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)"
    example = [(typed, ""), ("Half()(torch.ones(1, 4)).shape", "")]
    monkeypatch.setattr(snippets, "snippets", lambda: {"torch.nn.Linear": example})
    assert seen.look("torch.nn.Linear", flambeau.nn.Linear) == "`input (1, 4)` gives `(1, 2)`"


def _works_on_tensors(whole: str, value: object) -> bool:
    if getattr(value, "op", None) is not None or (isinstance(value, type) and issubclass(value, flambeau.nn.Module)):
        return True
    known = parameters.known(value) if callable(value) else None
    kinds, result = parameters.types(*whole.rpartition(".")[::2], known) if known is not None else ({}, "")
    return any(re.search(r"\bTensors?\b", kind) for kind in (result, *kinds.values()))


def test_shapes_are_told_of_all_that_works_on_tensors() -> None:
    silent = [n for n, v in names().items() if _works_on_tensors(n, v) and not shapes.is_told(n, v)]
    assert not silent


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch.add", "shape to which `input` and `other` broadcast"),  # by its kind
        ("torch.mm", "`(n, m)` and `(m, p)` give `(n, p)`"),  # written
        ("torch.Tensor.mul_", "is `input` itself"),  # by its form
        ("torch.Tensor.float", "shape of `input`"),  # by its batching rule
        ("torch.distributions.Dirichlet", "`concentration (..., n)`"),  # by its constraints
        ("torch.flip", "`input (2, 2)` gives `(2, 2)`"),  # by its example
    ],
)
def test_shapes_follow_from_records_and_examples(name: str, text: str) -> None:
    assert text in shapes.shape(name, names()[name])


def test_every_name_has_words() -> None:
    silent = [n for n, v in names().items() if v is not None and not entry.told(v)]
    assert not silent


def test_types_are_those_of_the_signature_or_left_out() -> None:
    text = entry.page("torchvision.models", "vgg11", names()["torchvision.models.vgg11"], "vision.html")
    row = next(row for row in text.split("<tr>") if row.startswith("<td><code>weights</code>"))
    assert "Tensor" not in row and "Trained weights" in row
    assert parameters.meaning("torch.nowhere.function", "weight", "str") == ("", "")
    assert parameters.meaning("torch.nowhere.function", "dim", "int | None")[0] == ""


def test_functions_that_work_in_place_take_what_they_change() -> None:
    assert "torch.square_(input: Tensor)" in re.sub(
        "<[^>]*>", "", entry.page("torch", "square_", flambeau.square_, "torch.html")
    )
    assert "Callable[" not in entry.page("torch.func", "vmap", flambeau.func.vmap, "torch.html").split("<details")[0]
    assert "attrgetter" not in str(entry._methods(flambeau.distributions.Normal))


def test_constants_have_pages_that_tell_their_value() -> None:
    assert entry.summary(flambeau.pi) == "`3.141592653589793`"
    assert "memory_format=torch.channels_last" in re.sub(
        "<[^>]*>", "", entry.page("torch", "channels_last", flambeau.channels_last, "torch.html")
    )


def test_page_of_an_enumeration_has_its_members() -> None:
    text = entry.page("torch.nn.attention", "SDPBackend", names()["torch.nn.attention.SDPBackend"], "nn.html")
    assert "FLASH_ATTENTION" in text and "qualname" not in text


def test_every_name_has_an_example() -> None:
    silent = [n for n, v in names().items() if not entry.example(n, v)]
    assert not silent, "write them into docs/_tools/snippets.txt"


def test_methods_without_words_have_those_of_their_base() -> None:
    text = entry.page("torch.nn", "Linear", flambeau.nn.Linear, "nn.html")
    assert "Compute the output" in text and "Initialise the parameters again" in text
    told = [bool(words) for v in names().values() if isinstance(v, type) for _, words in entry._methods(v)]
    assert sum(told) > 0.85 * len(told)


def test_every_parameter_has_a_meaning() -> None:
    silent = {
        f"{whole}: {p.name}"
        for whole, value in core().items()
        for p in getattr(parameters.known(value), "parameters", ())
        if not p.name.startswith("_") and not parameters.meaning(whole, p.name)[1]
    }
    assert not silent


def test_pages_are_complete_and_their_links_lead_somewhere() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pages = list(reference.pages())
        lists = dict(reference.overviews())
    files = {Path(address).name for address, *_ in pages} | {Path(a).with_suffix(".html").name for a in lists}
    assert len({a.lower() for a, *_ in pages}) == len(pages) > 2500
    for _, name, _, content in pages:
        assert name in content and "Compared with PyTorch" in content
        assert all(link.partition("#")[0] in files for link in re.findall(r'href="([^"]*)"', content)), name
    for text in lists.values():
        assert all(link in files for link in re.findall(r'href="([^"]*)"', text))


def test_page_of_an_operator_says_what_its_record_says() -> None:
    text = entry.page("torch", "add", flambeau.add, "torch.html")
    for part in (
        "alpha",
        "The factor of",
        "broadcast",
        "aten::add.Tensor",
        "exported",
        "LLVM",
        "Source: flambeau/ops/",
    ):
        assert part in text, part
