"""Certificates of hosts for tests, as `docs/how-to/use-several-machines.md` makes them with `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """An authority in a folder: `NAME.pem`, and the certificates that it has signed."""

    def __init__(self, folder: Path, name: str = "lab"):
        self.folder = folder
        self.name = name
        self.openssl(
            "req", "-x509", *KEY, "-days", 3, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=lab"
        )

    def openssl(self, *words):
        """Runs `openssl` in the folder."""
        done = subprocess.run(
            ["openssl", *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def sign(self, host: str, days: int = 3, names: str = "", file: str = "") -> str:
        """A certificate for a host of this machine; what stands behind `tls =` in the instrument file.

        `names`: in the place of the name of the host and the loopback; `file`: of the certificate and its key.
        """
        file = file or host
        names = names or f"DNS:{host},DNS:localhost,IP:127.0.0.1"
        words = ["-keyout", f"{file}.key", "-out", f"{file}.csr", "-subj", f"/CN={host}"]
        self.openssl("req", *KEY, *words, "-addext", f"subjectAltName={names}")
        signs = ["-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key", "-copy_extensions", "copy"]
        self.openssl("x509", "-req", "-in", f"{file}.csr", *signs, "-days", days, "-out", f"{file}.pem")
        return f'{{ certificate = "{file}.pem", key = "{file}.key", authority = "{self.name}.pem" }}'
