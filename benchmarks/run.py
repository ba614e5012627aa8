"""`make bench`: all benchmarks in an environment of their own, with the peers they are compared with.

PyTorch, Opacus and TenSEAL are only ever installed here, never in the project's environment.
"""

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / ".venv-bench"
SCRIPTS = ("engine.py", "scale.py", "accounting.py", "adascale.py", "biasvar.py", "crypto.py", "flower_overhead.py")


def main() -> None:
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "torch==2.13.0"], check=True)  # first, so that no other package chooses a torch
        subprocess.run([*install, "--editable", f"{HERE.parent}[sca,flower]", "python-flint"], check=True)
        for optional in ("opacus", "tenseal"):
            subprocess.run([*install, optional], check=False)
    wanted = sys.argv[1:] or [script for script in SCRIPTS if (HERE / script).exists()]
    for script in wanted:
        print(f"\n=== {script}", flush=True)
        subprocess.run([str(python), str(HERE / script)], check=True)


if __name__ == "__main__":
    main()
