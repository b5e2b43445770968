"""The files that start an instrument on a cluster name hosts that its file has, in the words of the system."""

import configparser
import json
import os
import subprocess

import kubernetes_validate
import yaml
from conftest import ROOT

CLUSTER = ROOT / "examples/cluster"
KUBERNETES = "1.37"


def documents() -> list[dict]:
    return list(yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text()))


def test_kubernetes_accepts_the_manifest_and_pods_are_hosts_of_the_instrument(lab):
    for document in documents():
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    (config,) = [document for document in documents() if document["kind"] == "ConfigMap"]
    for name, text in config["data"].items():
        (lab.folder / name).write_text(text)
    lab.run("check", lab.folder / "greta.toml")
    sections = json.loads(lab.run("check", "--show", "--json", lab.folder / "greta.toml").stdout)["resolved"][
        "sections"
    ]
    hosts = {section["name"] for section in sections if section["kind"] == "host"}
    sets = [document for document in documents() if document["kind"] == "StatefulSet"]
    assert [one["metadata"]["name"] for one in sets] == ["fb", "n", "b", "store"]
    for one in sets:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        claims = one["spec"].get("volumeClaimTemplates", []) + one["spec"]["template"]["spec"]["volumes"]
        names = [claim.get("name") or claim["metadata"]["name"] for claim in claims]
        assert sorted(names) == sorted(mounts) and mounts["shm"] == "/dev/shm"
        program, *words = container["command"]
        assert (program, words[0], words[2]) == ("beamport", "up", "--host")
        assert words[1] == f"{mounts['greta']}/greta.toml"
        assert {f"{one['metadata']['name']}-{number}" for number in range(one["spec"]["replicas"])} <= hosts


def test_jobs_of_slurm_and_units_of_systemd_start_hosts(lab):
    # It starts its tasks one after the other, with the number that Slurm gives each.
    (lab.folder / "srun").write_text('#!/bin/bash\nshift\nfor i in 0 1 2 3; do SLURM_PROCID=$i "$@"; done\n')
    (lab.folder / "beamport").write_text('#!/bin/bash\necho "$@"\n')
    for name in ["srun", "beamport"]:
        (lab.folder / name).chmod(0o755)
    env = os.environ | {"PATH": f"{lab.folder}:{os.environ['PATH']}"}
    for first in (1, 5):
        job = ["bash", CLUSTER / "workers.sbatch"]
        done = subprocess.run(job, env=env | {"FIRST": str(first)}, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"up instrument.toml --host n{n}" for n in range(first, first + 4)]
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(CLUSTER / "beamport@.service")
    assert unit["Service"]["ExecStart"].split()[1:] == ["up", "/etc/beamport/instrument.toml", "--host", "%i"]
