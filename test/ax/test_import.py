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
# What there is in modules of Ax and BoTorch, and in their classes, by identity.
UNCHANGED = """
import sys
import ax.adapter.cross_validation, ax.api.client, botorch.cross_validation
from ax.generators.torch.botorch_modular import generator, surrogate

def members():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in {"ax", "botorch", "gpytorch"}:
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            if isinstance(value, type):
                found |= {(name, key, k): v for k, v in list(vars(value).items())}
    return found

before = members()
import botorch_sparse.ax
after = members()
volatile = ("_abc_impl", "__annotations__", "__doc__")
changed = [
    key for key, value in before.items()
    if key[-1] not in volatile and after.get(key) is not value
]
print(len(before) > 10_000, changed)
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
    assert "pip install 'botorch_sparse[ax]'" in said


def test_importing_leaves_ax_and_botorch_as_they_are():
    """Registries get entries; no function, class or method is another one."""
    assert python(UNCHANGED).splitlines()[-1] == "True []"
