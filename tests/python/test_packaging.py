"""What is built where a machine lacks something."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path("lib") / "beamport" / "libbeamport_epics.so"


def test_a_build_without_a_compiler_says_so_and_keeps_no_old_client(tmp_path):
    (tmp_path / CLIENT).parent.mkdir(parents=True)
    (tmp_path / CLIENT).write_bytes(b"of yesterday")
    command = [sys.executable, str(ROOT / "packaging" / "epics.py"), str(tmp_path)]
    run = subprocess.run(command, env=os.environ | {"CXX": "no-such-compiler"}, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr == "beamport is built without EPICS: there is no C++ compiler `no-such-compiler`\n"
    assert not (tmp_path / CLIENT).exists()


def test_a_build_for_a_machine_without_wheels_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    epics = importlib.import_module("epics")
    monkeypatch.setattr(epics.platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(epics.shutil, "which", lambda _: "/usr/bin/c++")
    assert epics.provide(tmp_path) == []
    assert "without EPICS: there are no libraries of it for riscv64" in capsys.readouterr().err
