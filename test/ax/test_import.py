"""What is imported where: Ax by `botorch_sparse.ax` alone, and by nothing else."""

import subprocess
import sys

BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"ax", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""
IMPORT_ALL = """
import importlib, pkgutil
import botorch_sparse

def names(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        short = module.name.split(".")[1]
        if short in {"ax", "plotting", "__main__"}:
            continue
        yield module.name
        if module.ispkg:
            yield from names(importlib.import_module(module.name))

count = 0
for name in names(botorch_sparse):
    importlib.import_module(name)
    count += 1
loaded = {name.split(".")[0] for name in sys.modules}
print(count, sorted(loaded & {"ax", "matplotlib"}))
"""
IMPORT_AX = """
try:
    import botorch_sparse.ax
except ImportError as error:
    print(error)
"""


def python(code: str) -> str:
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_else_imports_ax_or_matplotlib():
    count, loaded = python("import sys" + IMPORT_ALL).split(" ", 1)
    assert int(count) > 80
    assert loaded == "[]"


def test_without_ax_the_error_names_the_extra():
    said = python(BLOCK + IMPORT_AX)
    assert "pip install 'botorch-sparse[ax]'" in said
