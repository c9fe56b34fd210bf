"""The simulated device keeps the rules of a real one, and counts right."""

import pytest
import simulated_device
import torch
from simulated_device import DEVICE, Simulated

pytestmark = pytest.mark.skipif(
    not simulated_device.IS_AVAILABLE, reason="needs torch >= 2.9"
)


@pytest.fixture
def traffic():
    with simulated_device.accelerator() as traffic:
        yield traffic


def test_numbers_are_those_of_the_host(traffic):
    host = torch.rand(5, 3, dtype=torch.float64)
    device = host.to(DEVICE)
    assert device.device == torch.device(DEVICE) and not device.is_cuda
    assert traffic.uploads.total() == 1
    for f in (
        torch.exp,
        torch.linalg.qr,
        lambda X: X @ X.mT,
        lambda X: X[1:, ::2].sum(),
    ):
        expected, actual = f(host), f(device)
        pairs = (
            [(expected, actual)]
            if isinstance(actual, Simulated)
            else zip(expected, actual, strict=True)
        )
        for a, b in pairs:
            assert isinstance(b, Simulated)
            assert torch.equal(a, b.cpu())


def test_gradients_are_those_of_the_host(traffic):
    host = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    device = host.detach().to(DEVICE).requires_grad_()
    for X in (host, device):
        vector = torch.arange(3, dtype=X.dtype, device=X.device)
        ((X @ vector).exp().sum() + (X.conj() * X).unsqueeze_(0).sum()).backward()
    assert torch.equal(host.grad, device.grad.cpu())


@pytest.mark.parametrize(
    "call, waits, uploads",
    [
        (lambda x: float(x[0]), 1, 0),
        (lambda x: bool((x > 0).all()), 1, 0),
        (lambda x: x.tolist(), 1, 0),
        (lambda x: x.cpu(), 1, 0),
        (lambda x: x.numpy(force=True), 1, 0),
        (lambda x: x[x > 0.5], 1, 0),
        (lambda x: x.nonzero(), 1, 0),
        (lambda x: torch.equal(x, x + 1), 1, 0),
        (lambda x: torch.equal(x, x[1:]), 0, 0),
        (lambda x: torch.equal(x, x.view(-1)), 0, 0),
        (lambda x: torch.linalg.cholesky(torch.diag(1 + x)), 1, 0),
        (lambda x: torch.linalg.cholesky_ex(torch.diag(1 + x)).L, 0, 0),
        (lambda x: torch.linalg.eigvalsh(torch.diag(x)), 1, 0),
        (lambda x: torch.tensor([1.0, 2.0], device=x.device), 0, 1),
        (lambda x: x.new_tensor([1.0, 2.0]), 0, 1),
        (lambda x: x[[0, 2]], 0, 1),
        (lambda x: x.copy_(torch.rand(4)), 0, 1),
        (lambda x: torch.rand(4).copy_(x), 1, 0),
        (lambda x: torch.where(x > 0.5, x, 0.0).cumsum(0) * 2.0, 0, 0),
        (lambda x: x * torch.tensor(2.0), 0, 0),
        (lambda x: x.topk(2).values.argmax(), 0, 0),
    ],
)
def test_waits_and_uploads(call, waits, uploads, traffic):
    x = torch.rand(4, device=DEVICE)
    traffic.clear()
    call(x)
    assert (traffic.waits.total(), traffic.uploads.total()) == (waits, uploads)


def test_the_line_that_asked_is_named(traffic):
    from botorch_sparse.pools.device_batch import read_scalars

    assert read_scalars(torch.ones(1, device=DEVICE)) == [1.0]
    (line,) = traffic.waits
    assert line.startswith("botorch_sparse/pools/device_batch.py:")
    assert line.endswith(" read_scalars")
    assert traffic.our_waits == 1
    assert line in str(traffic)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: x + torch.ones(4), "two devices in add"),
        (lambda x: torch.cat([x, torch.ones(4)]), "two devices in cat"),
        (lambda x: torch.ones(4)[x.long()], "two devices in index"),
        (
            lambda x: x.index_put_((x.long(),), torch.ones(4)),
            "two devices in index_put",
        ),
        (lambda x: x.normal_(generator=torch.Generator()), "generator of the host"),
        (
            lambda x: torch.rand(4, generator=torch.Generator(), device=DEVICE),
            "generator of the host",
        ),
    ],
)
def test_what_cuda_refuses_is_refused(call, message, traffic):
    with pytest.raises(RuntimeError, match=message):
        call(torch.zeros(4, device=DEVICE))


def test_there_is_no_way_to_numpy_but_by_the_host(traffic):
    with pytest.raises(TypeError, match="to numpy"):
        torch.zeros(4, device=DEVICE).numpy()


def test_modules_move(traffic):
    linear = torch.nn.Linear(3, 2).double()
    expected = linear(torch.ones(3, dtype=torch.float64))
    on_device = linear.to(DEVICE)
    actual = on_device(torch.ones(3, dtype=torch.float64, device=DEVICE))
    torch.testing.assert_close(actual.cpu(), expected)
    on_device.weight.data = torch.zeros(5, 3, dtype=torch.float64, device=DEVICE)
    assert on_device.weight.requires_grad
    assert (on_device.weight + 1).shape == (5, 3)


def test_views_in_inference_mode(traffic):
    x = torch.rand(4, device=DEVICE)
    with torch.inference_mode():
        view, new = x[:2], x + 1
    assert not view.is_inference()
    assert new.is_inference()
