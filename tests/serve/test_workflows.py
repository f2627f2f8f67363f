"""Workflows: nodes fed by nodes, in order and side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from flambeau.serve import archiver

from .serving import Client, dedent, make_model

FUNCTIONS = dedent("""
    import json

    def before(data, context):
        return data and [bytes(row.get("data") or row.get("body")).upper() for row in data]

    def join(data, context):
        return data and [json.dumps({k: bytes(v).decode() for k, v in sorted(row.items())}) for row in data]

    def fails(data, context):
        if data:
            raise ValueError("no")
""")
ADD = """
    def handle(data, context):
        return data and [bytes(row["body"]) + b"{letter}" for row in data]
"""


@pytest.fixture(scope="module")
def wars(store: Path) -> Path:
    for letter in "xy":
        make_model(store, f"add{letter}", ADD.format(letter=letter))
    (store / "functions.py").write_text(FUNCTIONS)
    specifications = {
        "line": "models: {min-workers: 1, max-workers: 1, addx: {url: addx.mar}}\ndag: {before: [addx]}",
        "diamond": "models:\n  addx: {url: addx.mar}\n  addy: {url: addy.mar}\ndag: {before: [addx, addy], addx: [join], addy: [join]}",
        "broken": "models: {retry-attempts: 1}\ndag: {before: [fails]}",
        "circle": "models: {}\ndag: {before: [join], join: [before]}",
        "missing": "models: {m: {url: nothing.mar}}\ndag: {m: []}",
        "two": "models: {}\ndag: {before: [join, again]}",
    }
    (store / "functions.py").write_text(FUNCTIONS + "\n\nagain = join\n")
    for name, text in specifications.items():
        (store / f"{name}.yaml").write_text(text)
        archiver.package_workflow(name, spec_file=str(store / f"{name}.yaml"), handler=str(store / "functions.py"),
                                  export_path=str(store), force=True)  # fmt: skip
    return store


def test_a_line(client: Client, wars: Path):
    answer = client.manage("POST", "/workflows?url=line.war")
    assert (answer.status, answer.json()["status"]) == (
        200,
        "Workflow line has been registered and scaled successfully.",
    )
    assert client.ask("POST", "/wfpredict/line", b"abc").body == b"ABCx"
    assert client.manage("GET", "/workflows").json() == {
        "workflows": [{"workflowName": "line", "workflowUrl": "line.war"}]
    }
    (words,) = client.manage("GET", "/workflows/line").json()
    assert words["workflowDag"] == "{before=[addx]}"
    assert client.manage("POST", "/workflows?url=line.war").status == 409
    assert client.manage("DELETE", "/workflows/line").json() == {"status": 'Workflow "line" unregistered'}
    assert client.ask("POST", "/wfpredict/line", b"abc").status == 404
    assert not [m for m in client.manage("GET", "/models").json()["models"] if m["modelName"].startswith("line__")]


def test_a_diamond_runs_side_by_side_and_joins_by_name(client: Client, wars: Path):
    assert client.manage("POST", "/workflows", {"url": "diamond.war", "workflow_name": "d"}).status == 200
    assert client.ask("POST", "/wfpredict/d", b"q").json() == {"addx": "Qx", "addy": "Qy"}
    assert client.manage("DELETE", "/workflows/d").status == 200


def test_several_ends_are_answered_by_name(client: Client, wars: Path):
    assert client.manage("POST", "/workflows?url=two.war").status == 200
    assert client.ask("POST", "/wfpredict/two", b"q").json() == {"join": {"body": "Q"}, "again": {"body": "Q"}}
    assert client.manage("DELETE", "/workflows/two").status == 200


def test_a_failing_node_is_an_error(client: Client, wars: Path):
    assert client.manage("POST", "/workflows?url=broken.war").status == 200
    answer = client.ask("POST", "/wfpredict/broken", b"q")
    assert (answer.status, answer.json()["message"]) == (500, "Error executing fails")
    assert client.manage("DELETE", "/workflows/broken").status == 200


def test_what_cannot_be_registered(client: Client, wars: Path):
    for path, status in (
        ("?url=circle.war", 400),
        ("?url=missing.war", 500),
        ("?url=none.war", 404),
        ("", 400),
        ("?url=", 404),
    ):
        assert client.manage("POST", f"/workflows{path}").status == status, path
    assert client.manage("GET", "/workflows").json() == {"workflows": []}
    assert client.manage("DELETE", "/workflows/none").status == 404
    assert client.manage("PUT", "/workflows/none").status == 405
