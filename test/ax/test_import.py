"""What is imported where: Ax by `botorch_sparse.ax` alone, and by nothing else."""

import subprocess
import sys

import pytest

# One process for all, since importing torch and Ax is what takes the time. Registries
# get entries on import; what else there is in modules of Ax and BoTorch, and in their
# classes, is compared by identity.
SCRIPT = """
import importlib, pkgutil, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"ax", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def names(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        short = module.name.split(".")[1]
        if short in {"ax", "plotting", "__main__"}:
            continue
        yield module.name
        if module.ispkg:
            yield from names(importlib.import_module(module.name))

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

def changed(before):
    after = members()
    volatile = ("_abc_impl", "__annotations__", "__doc__")
    return [
        key for key, value in before.items()
        if key[-1] not in volatile and after.get(key) is not value
    ]

import botorch, botorch.cross_validation, gpytorch
before, block = members(), Block()
sys.meta_path.insert(0, block)
import botorch_sparse
imported = [importlib.import_module(name) for name in names(botorch_sparse)]
loaded = {name.split(".")[0] for name in sys.modules}
print(len(imported), sorted(loaded & {"ax", "matplotlib"}))
print(len(before), changed(before))
try:
    import botorch_sparse.ax
except ImportError as error:
    print(error)

sys.meta_path.remove(block)
import ax.adapter.cross_validation, ax.api.client
from ax.generators.torch.botorch_modular import generator, surrogate
before = members()
import botorch_sparse.ax
print(len(before), changed(before))
"""


@pytest.fixture(scope="module")
def said():
    """Lines that the process printed."""
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()


def test_nothing_else_imports_ax_or_matplotlib(said):
    count, loaded = said[0].split(" ", 1)
    assert int(count) > 80
    assert loaded == "[]"


def test_without_ax_the_error_names_the_extra(said):
    assert "pip install 'botorch_sparse[ax]'" in said[2]


@pytest.mark.parametrize(("line", "least"), [(1, 5_000), (3, 10_000)])
def test_importing_leaves_ax_and_botorch_as_they_are(line, least, said):
    """Registries get entries; no function, class or method is another one."""
    count, changed = said[line].split(" ", 1)
    assert int(count) > least
    assert changed == "[]"
