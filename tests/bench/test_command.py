"""``python -m bench``: what cannot be done is said in one line before anything runs, and tables are for people."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import command_line
from bench.results import LONGEST_PRINTED, Results

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"plan": "planning", "replay": "replay"}
"""Benchmarks whose options are read in a folder of modules, too."""


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Why the command does not begin, in one line."""

    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            command_line.parsed(arguments)
        assert ended.value.code == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.count("\n") == 1
        return err.rstrip("\n")

    return refused


def test_an_option_of_another_benchmark_is_refused(refused: Callable[..., str]) -> None:
    says = "python -m bench paper: argument --trace: not an option of paper; --help lists those that are"
    assert refused("paper", "--trace", "azure", "--gpu", "foo", "--url", "http://x") == says
    assert "argument --gpu: not an option of replay" in refused("replay", "--gpu=h200")
    assert "argument --url: not an option of plan" in refused("plan", "--url", "http://x")
    assert "argument --fig: not an option of paper" in refused("paper", "--fig", "fig12")
    assert "argument --dtype: invalid choice: 'nonsense'" in refused("guided", "--dtype", "nonsense")
    assert "argument fig12: not an option of paper" in refused("paper", "fig12")


def test_a_benchmark_is_needed_and_must_be_one(refused: Callable[..., str]) -> None:
    assert "the name of a benchmark is missing" in refused()
    assert "invalid choice: 'papers'" in refused("papers")


def test_a_sample_is_smaller_or_whole(refused: Callable[..., str]) -> None:
    assert "--full and --quick" in refused("paper", "--full", "--quick")


def test_every_option_that_is_read_can_be_given() -> None:
    for name in command_line.BENCHMARKS:
        options = vars(command_line.parsed([name]))
        modules = [importlib.import_module(f"bench.{name.replace('-', '_')}")]
        if part := PARTS.get(name):
            folder = importlib.import_module(f"bench.{part}")
            modules += [
                importlib.import_module(f"bench.{part}.{found.name}") for found in pkgutil.iter_modules(folder.__path__)
            ]
        read = {
            option
            for module in modules
            for option in re.findall(r"\boptions\.([a-z_]+)\b(?! import|\()", Path(str(module.__file__)).read_text())
        }
        assert read <= set(options), name


def test_the_commands_of_the_documentation_are_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = [page.read_text().replace("\\\n", " ") for page in pages]
    commands = [found for text in texts for found in re.findall(r"python -m bench ([a-z][^`\n#]*)", text)]
    assert len(commands) > 30
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DIR").mkdir()
    for each in commands:
        name, *_ = arguments = shlex.split(each)
        assert command_line.parsed(arguments).name == name


def test_what_is_common_may_stand_before_the_name() -> None:
    options = command_line.parsed(["--quick", "--json", "-", "pool", "--repeats", "3"])
    assert (options.name, options.quick, options.json, options.html, options.repeats) == ("pool", True, "-", None, 3)


def test_the_help_has_a_line_for_each_benchmark_and_one_of_a_benchmark_its_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["--help"], ["paper", "--help"]):
        with pytest.raises(SystemExit, match="0"):
            command_line.parsed(arguments)
    everything, of_paper = capsys.readouterr().out.split("usage: ")[1:]
    assert all(name in everything for name in command_line.BENCHMARKS)
    assert "--figures" in of_paper
    assert "--trace " not in of_paper


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_what_cannot_be_written_is_refused_before_anything_runs(
    option: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("earlier")
    for path, why in {
        tmp_path: "Is a directory",
        Path("/proc/x.html"): "No such file or directory",
        tmp_path / "file" / "x.html": "Not a directory",
        tmp_path / "file" / "new" / "x.html": "Not a directory",
        tmp_path / ("x" * 300): "File name too long",
    }.items():
        assert refused("paper", option, str(path)).endswith(f"{option} {path}: cannot be written: {why}")
    assert (tmp_path / "file").read_text() == "earlier"


def test_a_plot_is_tried_too(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "--plot" in refused("scaling", "--plot", str(tmp_path))


def test_standard_output_is_for_results_alone(refused: Callable[..., str]) -> None:
    assert "only --json takes -" in refused("paper", "--html", "-")
    assert command_line.parsed(["paper", "--json", "-"]).json == "-"


def test_trying_a_file_makes_its_folders_and_changes_no_file(tmp_path: Path) -> None:
    earlier, link = tmp_path / "earlier.json", tmp_path / "link.html"
    earlier.write_text("earlier")
    link.symlink_to(tmp_path / "target.html")
    command_line.parsed(["paper", "--json", str(earlier), "--html", str(tmp_path / "new" / "folder" / "x.html")])
    command_line.parsed(["paper", "--json", "/dev/null", "--html", str(link)])
    assert earlier.read_text() == "earlier"
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["earlier.json", "folder", "link.html", "new"]


def test_results_go_to_a_new_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    to = tmp_path / "new" / "x.json"
    monkeypatch.setattr(sys, "argv", ["bench", "paper", "--figures", "table1", "--json", str(to)])
    assert command.main() == 0
    assert json.loads(to.read_text())["complete"]


# --- the table --------------------------------------------------------------------------------------------------------


def test_long_values_are_cut_for_people_and_whole_in_the_json() -> None:
    results = Results("toy")
    results.incomplete = None
    points = [{"rate": number / 8, "ttft_s": 0.25} for number in range(200)]
    results.add_value("toy.by_rate", points)
    results.add_value("toy.seconds", {"fig12": 8.6, "fig18": 8.0}, unit="s")
    results.add("toy.rate", 2.5, unit="requests/s")
    table = io.StringIO()
    results.print_table(table)
    long, short, number = table.getvalue().splitlines()
    assert len(long) < LONGEST_PRINTED + 50
    assert long.endswith("… (whole in the JSON) ")
    assert '{"fig12": 8.6, "fig18": 8.0} s' in short
    assert "2.500 requests/s" in number
    assert json.loads(results.to_json())["results"][0]["value"] == points
