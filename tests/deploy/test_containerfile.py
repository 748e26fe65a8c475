"""The Containerfile: its rules, and its steps in a clean environment, since no test builds an image."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.installations import is_cut_off
from tests.support.pages import ROOT

FILE: Final = ROOT / "deploy" / "Containerfile"
_LIMIT: Final = 900
"""Seconds for pip: a machine without a cache fetches 200 MB."""


class Step(NamedTuple):
    word: str
    rest: str


def read_steps(text: str) -> list[Step]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Step(*line.split(maxsplit=1)) for line in lines]


STEPS: Final = read_steps(FILE.read_text(encoding="utf-8"))


def of(word: str) -> list[str]:
    return [step.rest for step in STEPS if step.word == word]


def test_the_base_image_has_a_version_and_no_registry() -> None:
    [base] = [rest.removeprefix("BASE=") for rest in of("ARG")]
    image, _, tag = base.partition(":")
    assert "/" not in image
    assert re.fullmatch(r"3\.\d+-slim-\w+", tag)
    assert of("FROM") == ["${BASE} AS build", "${BASE}"]


def test_the_image_runs_as_a_numeric_user_that_is_not_root() -> None:
    assert of("USER") == ["65532:65532"]
    assert STEPS[-3:] == [Step("USER", "65532:65532"), Step("ENTRYPOINT", '["authplane"]'), Step("CMD", '["--help"]')]


def test_only_named_files_get_into_the_image() -> None:
    assert {step.word for step in STEPS} == {
        "ARG",
        "FROM",
        "ENV",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "ENTRYPOINT",
        "CMD",
    }
    copied = {word for rest in of("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]}
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / each).exists() for each in copied)


def test_packages_are_verified_by_hash() -> None:
    for line in of("RUN"):
        for command in line.split("&&"):
            if " install " in command:
                assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.parametrize("name", ["requirements-image.lock", "requirements-build.lock"])
def test_the_image_has_the_versions_that_tests_use(name: str) -> None:
    def pins(path: str) -> set[str]:
        return set(re.findall(r"^([\w.-]+==[^ ;\\]+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))

    assert pins(name)
    assert pins(name) <= pins("requirements.lock"), "run: make lock"


@pytest.mark.requirement("KI-8")
@pytest.mark.real
@pytest.mark.slow
def test_the_steps_give_a_working_installation(tmp_path: Path) -> None:
    if is_cut_off():
        pytest.skip("This machine has no network, and pip needs one. Run the test without isolation.")
    folder, environment = tmp_path / "src", {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    python = Path(os.path.realpath("/proc/self/exe")).parent
    environment["PATH"] = f"{python}:{environment['PATH']}"
    for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "HTTPS_PROXY", "SSL_CERT_FILE", "PIP_CACHE_DIR"):
        if name in os.environ:
            environment[name] = os.environ[name]
    environment.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    environment |= {"BUILD": str(tmp_path / "build"), "PREFIX": str(tmp_path / "opt")}
    folder.mkdir()
    for step in STEPS[: STEPS.index(Step("FROM", "${BASE}"))]:
        match step.word:
            case "COPY":
                *sources, _ = step.rest.split()
                for each in sources:
                    _copy(ROOT / each, folder / each)
            case "RUN":
                run(["sh", "-euc", step.rest], folder, environment)
            case _:
                assert step.word in {"ARG", "FROM", "ENV", "WORKDIR"}
    programs = Path(environment["PREFIX"]) / "bin"
    assert run([str(programs / "authplane"), *shlex.split("crds")], folder, environment).count("kind: Custom") == 2
    assert "version" in run([str(programs / "envoy"), "--version"], folder, environment)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def run(argv: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
