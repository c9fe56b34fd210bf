"""A simulated accelerator: a device of its own, real numbers, every wait counted.

A `Simulated` tensor holds a tensor of the CPU and says that it lives on `sim:0`. What
is computed with it is computed by the CPU, so that results are the CPU's to the bit,
but the rules are those of CUDA:

* Operations on tensors of both devices raise; a number in a 0-dimensional tensor of the
  host may take part, and so may indices of tensors on the device.
* A generator of the host cannot draw for the device, and `.numpy()` raises.
* Whatever makes the host wait for the device is counted, with the line that asked for
  it: reading a number, copying to the host, results whose shape depends on values, and
  factorizations that check for errors.
* Uploads and launched operations are counted as well; views launch nothing.

    with accelerator() as traffic:
        X = torch.rand(3000, 4, device="sim", dtype=torch.float64)
        ...
    print(traffic)

It stands on PyTorch's guard for devices written in Python (torch >= 2.9). There is none
(`IS_AVAILABLE` is False) for older versions, and beside a GPU.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

try:
    from torch.utils.backend_registration import (
        _setup_privateuseone_for_python_backend,
    )
except ImportError:
    IS_AVAILABLE = False
else:
    # A machine has one kind of accelerator: autograd would take this one's streams.
    IS_AVAILABLE = not torch.cuda.is_available()

if IS_AVAILABLE:
    _setup_privateuseone_for_python_backend("sim")
    # It draws with the host's generator, which whoever saves states saves as well.
    torch.sim.get_rng_state = lambda device=None: torch.empty(0, dtype=torch.uint8)
    torch.sim.set_rng_state = lambda state, device=None: None

DEVICE = "sim:0"
OURS = "botorch_sparse/"
LIBRARIES = (OURS, "/botorch/", "/gpytorch/", "/linear_operator/")

# What CUDA has to look at before the host can go on.
WAITS = {
    "_linalg_check_errors",
    "_linalg_eigh",
    "_linalg_svd",
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "histc",
    "linalg_eig",
    "linalg_lstsq",
    "masked_select",
    "multinomial",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
FACTORIES = {torch.tensor, torch.as_tensor, torch.asarray}
ON_THE_HOST = {Tensor.numpy, Tensor.__array__}
SUBSCRIPTS = {Tensor.__getitem__, Tensor.__setitem__}


@dataclass
class Traffic:
    """What the host and the device said to one another.

    Attributes:
        waits: Lines of the libraries that made the host wait, with how often.
        uploads: Lines that copied from the host to the device.
        launches: Names of operations.
    """

    waits: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)

    @property
    def our_waits(self) -> int:
        """Waits that lines of this package asked for."""
        return sum(n for line, n in self.waits.items() if line.startswith(OURS))

    def clear(self) -> None:
        """Begin to count anew."""
        for counter in (self.waits, self.uploads, self.launches):
            counter.clear()

    def __str__(self) -> str:
        totals = (c.total() for c in (self.waits, self.uploads, self.launches))
        lines = ["{} waits, {} uploads, {} launches".format(*totals)]
        for name, counter in (("wait", self.waits), ("upload", self.uploads)):
            lines += [f"{n:6} {name}s at {line}" for line, n in counter.most_common()]
        return "\n".join(lines)


class Simulated(Tensor):
    """A tensor of the simulated device; `elem` is the tensor of the host behind it."""

    elem: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: Tensor) -> "Simulated":
        if elem.is_inference() != torch.is_inference_mode_enabled():
            with torch.inference_mode(elem.is_inference()):  # a view of what it is not
                return cls.__new__(cls, elem)
        return Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=DEVICE,
        )

    def __init__(self, elem: Tensor) -> None:
        self.elem = elem

    def __repr__(self, **kwargs: Any) -> str:
        return f"Simulated({self.elem})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As it is saved, or sent to another process."""
        is_parameter = isinstance(self, torch.nn.Parameter)
        return _rebuilt, (self.elem, self.requires_grad, is_parameter)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


def _rebuilt(elem: Tensor, requires_grad: bool, is_parameter: bool) -> Tensor:
    tensor = Simulated(elem).requires_grad_(requires_grad)
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor


torch.serialization.add_safe_globals([_rebuilt])  # a state may hold such tensors


class _Operation(NamedTuple):
    """What there is to know about an operation before it runs."""

    name: str
    waits: bool
    is_indexing: bool
    is_in_place: bool
    reshapes: bool  # in place
    launches: bool  # views do not


@cache
def _operation(func: Any) -> _Operation:
    name = func._schema.name.removeprefix("aten::")
    in_place = func._schema.is_mutable and name.endswith("_")
    reshapes = torch.Tag.inplace_view in func.tags
    launches = not (func.is_view or reshapes)
    return _Operation(
        name, name in WAITS, name in INDEXING, in_place, reshapes, launches
    )


class _Operands:
    """The tensors among the arguments, and the arguments with the host's tensors."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.sims: list[Simulated] = []
        self.hosts: list[Tensor] = []
        self.args = [self._seen(arg) for arg in args]
        self.kwargs = {key: self._seen(arg) for key, arg in kwargs.items()}

    def _seen(self, arg: Any) -> Any:
        if isinstance(arg, Simulated):
            self.sims.append(arg)
            return arg.elem
        if isinstance(arg, Tensor):
            self.hosts.append(arg)
        elif isinstance(arg, list | tuple):
            return type(arg)(map(self._seen, arg))
        return arg


_traffic = Traffic()
_aten = torch.ops.aten


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation on the device, or on the host where no tensor is the device's."""
    device = kwargs.get("device")
    creates = device is not None and torch.device(device).type == "sim"
    operands = _Operands(args, kwargs)
    if not (operands.sims or creates):
        return func(*args, **kwargs)
    if func is _aten._to_copy.default:
        return _to_copy(operands, creates, keeps_device=device is None)
    if func is _aten.copy_.default:
        return _copy_into(args[0], args[1], operands)
    if creates:
        operands.kwargs["device"] = torch.device("cpu")
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"A generator of the host for {func} at {_line()}.")
    operation = _operation(func)
    _note(operation, operands, args[1] if operation.is_indexing else [])
    out = func(*operands.args, **operands.kwargs)
    if operation.reshapes:
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
    return args[0] if operation.is_in_place else _wrapped(out, operands.sims)


def _to_copy(operands: _Operands, creates: bool, keeps_device: bool) -> Tensor:
    """To another device or dtype."""
    kwargs = {k: v for k, v in operands.kwargs.items() if k != "device"}
    out = _aten._to_copy.default(*operands.args, **kwargs)
    is_sim = bool(operands.sims)
    if is_sim and not (creates or keeps_device):
        _traffic.waits[_line()] += 1
        return out
    if is_sim:
        _traffic.launches["_to_copy"] += 1
    else:
        _traffic.uploads[_line()] += 1
    return Simulated(out)


def _copy_into(into: Tensor, source: Tensor, operands: _Operands) -> Tensor:
    """Into a tensor that is there already, of either device."""
    to_device, from_device = (isinstance(t, Simulated) for t in (into, source))
    if from_device and not to_device:
        _traffic.waits[_line()] += 1
    elif to_device and not from_device and source.dim() > 0:
        _traffic.uploads[_line()] += 1
    else:
        _traffic.launches["copy_"] += 1
    _aten.copy_.default(*operands.args, **operands.kwargs)
    return into


def _note(operation: _Operation, operands: _Operands, indices: Sequence[Any]) -> None:
    """Count an operation on the device; refuse tensors of the host but indices."""
    uploaded = [i for i in indices if any(i is host for host in operands.hosts)]
    others = [t for t in operands.hosts if all(t is not i for i in uploaded)]
    if operands.sims and any(t.dim() > 0 for t in others):
        raise RuntimeError(
            f"Tensors of two devices in {operation.name} at {_line()}: those of the "
            f"host have the shapes {[tuple(t.shape) for t in others]}."
        )
    _traffic.launches[operation.name] += operation.launches
    if uploaded:
        _traffic.uploads[_line()] += 1
    is_masked = any(i is not None and i.dtype == torch.bool for i in indices)
    if is_masked or (operation.waits and not _is_known_equal(operation, operands)):
        _traffic.waits[_line()] += 1


def _is_known_equal(operation: _Operation, operands: _Operands) -> bool:
    """Whether `equal` needs no look at values: other shapes, or the same memory."""
    if operation.name != "equal":
        return False
    a, b = (t.elem for t in operands.sims)
    is_same = a.data_ptr() == b.data_ptr() and a.stride() == b.stride()
    return a.shape != b.shape or is_same


def _wrapped(out: Any, sims: list[Simulated]) -> Any:
    """A result on the device; a tensor that was an argument is that argument."""
    if isinstance(out, Tensor):
        for tensor in sims:
            if tensor.elem is out:
                return tensor
        # Lazy conjugates are resolved above this level, and would be forgotten.
        return Simulated(out.resolve_conj().resolve_neg() if out.is_complex() else out)
    if isinstance(out, list | tuple):
        return type(out)(_wrapped(element, sims) for element in out)
    return out


def _line() -> str:
    """The innermost line of the libraries that is running, named by its function."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        package = next((name for name in LIBRARIES if name in path), None)
        if package is not None:
            path = path[path.rindex(package) :].lstrip("/")
            return f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


class _Dispatch(TorchDispatchMode):
    """Catches operations that create tensors, which no argument gives away."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a detour at each operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Catches what PyTorch does below or without its operations."""

    def __torch_function__(
        self, func: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            return _create(func, args, kwargs)
        if not (args and isinstance(args[0], Tensor)):
            return func(*args, **kwargs)
        if not isinstance(args[0], Simulated):
            return func(*args, **kwargs)
        if func in ON_THE_HOST:
            return _to_numpy(args[0], **kwargs)
        if func is Tensor.data_ptr:
            return args[0].elem.data_ptr()
        if func == Tensor.data.__set__:
            args[0].elem = args[1].elem
        if func is Tensor.tolist:
            _traffic.waits[_line()] += 1
            return args[0].detach().elem.tolist()
        if func is Tensor.new_tensor:
            kwargs = {"dtype": args[0].dtype, "device": args[0].device} | kwargs
            return _create(torch.tensor, args[1:], kwargs)
        if func in SUBSCRIPTS:
            args = (args[0], _indices(args[1]), *args[2:])
        return func(*args, **kwargs)


def _create(func: Callable, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """A tensor from the host's numbers."""
    device = kwargs.get("device")
    is_on_device = device is not None and torch.device(device).type == "sim"
    if not is_on_device or isinstance(args[0], Simulated):
        return func(*args, **kwargs)
    requires_grad = kwargs.pop("requires_grad", False)
    _traffic.uploads[_line()] += 1
    out = func(*args, **(kwargs | {"device": "cpu"}))
    return Simulated(out.detach().clone()).requires_grad_(requires_grad)


def _indices(index: Any) -> Any:
    """Lists in a subscript as tensors, which PyTorch makes of them out of sight."""
    if isinstance(index, tuple):
        return tuple(map(_indices, index))
    if isinstance(index, list) and all(isinstance(i, int) for i in index):
        return torch.tensor(index, dtype=None if index else torch.long)
    return index


def _to_numpy(tensor: Simulated, force: bool = False) -> Any:
    """As on CUDA: only by force, which is a copy to the host."""
    if not force:
        raise TypeError(
            f"can't convert sim:0 device type tensor to numpy at {_line()}. Use "
            "Tensor.cpu() to copy the tensor to host memory first."
        )
    return tensor.detach().cpu().numpy()


@contextmanager
def accelerator() -> Iterator[Traffic]:
    """The device is there inside of this context; yields its traffic, none at first."""
    _traffic.clear()
    # Gradients in this thread: another one would know of neither mode.
    with torch.autograd.set_multithreading_enabled(False), _Functions(), _Dispatch():
        yield _traffic
