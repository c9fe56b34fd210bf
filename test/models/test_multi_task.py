"""`SparseMultiTaskGP` beside `MultiTaskGP`, and its modules beside closed forms."""

import pickle
from typing import Any

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP
from botorch.models.kernels.positive_index import PositiveIndexKernel
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods.hadamard_gaussian_likelihood import HadamardGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseMultiTaskGP, loo_cv
from botorch_sparse.models.fantasy import SparseFantasyModel
from botorch_sparse.models.inducing_points import EXACT_SIZE
from botorch_sparse.models.tasks import TaskKernel, TaskNoise, TaskNumbers

NUM = 30
OTHER = (7, 3)  # values of the tasks in some tests


def data(n: int = NUM, values: tuple[int, int] = (0, 1)) -> tuple[Tensor, Tensor]:
    """Two tasks of one function of two features; the task is the middle column."""
    g = torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=g).double()
    task = torch.arange(n) % 2
    Y = (6 * X[:, :1]).sin() * (1 + task[:, None]) + X[:, 1:] ** 2 - task[:, None]
    Y = Y + 0.05 * torch.randn(n, 1, generator=g).double()
    column = torch.tensor(values).double()[task]
    return torch.stack([X[:, 0], column, X[:, 1]], dim=-1), Y


def pair(n: int = NUM, **kwargs: Any) -> tuple[MultiTaskGP, SparseMultiTaskGP]:
    """BoTorch's model and ours, with the same parameters, in eval mode."""
    X, Y = data(n)
    torch.manual_seed(0)
    exact = MultiTaskGP(X, Y, 1, **kwargs).eval()
    torch.manual_seed(0)
    return exact, SparseMultiTaskGP(X, Y, 1, **kwargs).eval()


def points(n: int = 5) -> Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(1)).double()


FEW = data(12)[0]  # inducing points, so that it is not the exact GP
OPTIONS: list[dict[str, Any]] = [
    {},
    {"output_tasks": [1]},
    {"rank": 1, "task_covar_prior": None},
    {"train_Yvar": torch.full((NUM, 1), 0.01).double()},
    {"outcome_transform": None},
    {"input_transform": Normalize(3, indices=[0, 2])},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_few_points_predict_as_botorch_does(options: dict[str, Any]) -> None:
    """Also what the state dict of BoTorch's model says."""
    exact, ours = pair(**options)
    assert ours.is_exact and ours.num_outputs == exact.num_outputs
    assert exact.state_dict().keys() == ours.state_dict().keys()
    ours.load_state_dict(exact.state_dict())
    for X in (points(), data(5)[0]):
        for noise in (False, True):
            expected = exact.posterior(X, observation_noise=noise)
            found = ours.posterior(X, observation_noise=noise)
            torch.testing.assert_close(found.mean, expected.mean)
            torch.testing.assert_close(found.variance, expected.variance)


@pytest.mark.parametrize("values", [(0, 1), OTHER])
def test_the_sparse_posterior_is_the_one_of_its_formula(
    values: tuple[int, int],
) -> None:
    """DTC with matrices that are put together here, task by task."""
    X, Y = data(40, values)
    S = data(12, values)[0]
    model = SparseMultiTaskGP(X, Y, 1, inducing_points=S, outcome_transform=None)
    noise = torch.tensor([0.01, 0.2]).double()  # of the smaller value, and the larger
    model.likelihood.noise = noise
    means = torch.tensor([0.5, -1.0]).double()
    for module, value in zip(model.mean_module.base_means, means, strict=True):
        module.initialize(constant=value)
    kernel, of_tasks = model.covar_module.kernels
    length, B = kernel.lengthscale.detach(), of_tasks.covar_matrix.detach()

    def number(Z: Tensor) -> Tensor:
        return (Z[:, 1] == max(values)).long()

    def k(Z: Tensor, W: Tensor) -> Tensor:
        U, V = Z[:, [0, 2]] / length, W[:, [0, 2]] / length
        squares = (U[:, None] - V).square().sum(-1)
        return (-squares / 2).exp() * B[number(Z)][:, number(W)]

    grid = points()
    T = torch.cat(
        [torch.stack([grid[:, 0], torch.full((5,), v), grid[:, 1]], -1) for v in values]
    ).double()
    D = noise[number(X)]
    K_S, K_SX, K_ST = k(S, S), k(S, X), k(S, T)
    inner = K_S + K_SX / D @ K_SX.T
    residual = (Y.squeeze(-1) - means[number(X)]) / D
    mean = means[number(T)] + K_ST.T @ torch.linalg.solve(inner, K_SX @ residual)
    covariance = k(T, T) - K_ST.T @ torch.linalg.solve(K_S, K_ST)
    covariance += K_ST.T @ torch.linalg.solve(inner, K_ST)
    assert not model.is_exact and model._expected_task_values == {*values}
    one = model.posterior(T)
    torch.testing.assert_close(one.mean.squeeze(-1), mean)
    torch.testing.assert_close(one.distribution.covariance_matrix, covariance)
    both = model.posterior(grid, output_indices=[*values])
    torch.testing.assert_close(both.mean.mT.reshape(-1), mean)
    torch.testing.assert_close(both.variance.mT.reshape(-1), covariance.diagonal())
    noisy = model.posterior(T, observation_noise=True).variance.squeeze(-1)
    torch.testing.assert_close(noisy, covariance.diagonal() + noise[number(T)])


def test_the_kernel_is_botorchs() -> None:
    """Matrices, diagonals and gradients."""
    numbers = TaskNumbers([*OTHER], default=3)
    ours = TaskKernel(numbers, rank=2)
    theirs = PositiveIndexKernel(num_tasks=2, rank=2)
    theirs.load_state_dict(ours.state_dict())
    x = torch.tensor([7.0, 3.0, 7.0, 3.0, 3.0]).unsqueeze(-1)
    z = (x == 7).float()
    weights = torch.rand(5, 5)
    for left, right in (((x, x), (z, z)), ((x[:2], x), (z[:2], z))):
        found, expected = ours(*left).to_dense(), theirs(*right).to_dense()
        torch.testing.assert_close(found, expected)
        (found * weights[: len(found)]).sum().backward()
        (expected * weights[: len(found)]).sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    torch.testing.assert_close(ours(x, diag=True), theirs(z).to_dense().diagonal())
    assert numbers(torch.tensor([3.0, 4.0, 7.0, 9.0])).tolist() == [0, 0, 1, 0]


def test_the_noise_is_the_one_of_the_task() -> None:
    ours = TaskNoise(TaskNumbers([0, 1], default=0), 1)
    theirs = HadamardGaussianLikelihood(2, task_feature_index=1)
    for likelihood in (ours, theirs):
        likelihood.noise = torch.tensor([0.1, 0.5])
    X = data(6)[0].float()
    prior = torch.distributions.Normal(torch.zeros(6), 1.0)
    f = prior.sample(torch.Size([3]))
    torch.testing.assert_close(ours(f, X).stddev, theirs(f, X).stddev)


def test_a_fit_predicts_as_the_exact_one() -> None:
    """Beyond the size of the exact GP; the objective is not convex, but easy here."""
    X, Y = data(600)
    torch.manual_seed(0)
    ours = SparseMultiTaskGP(X, Y, 1)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(ours.likelihood, ours))
    exact = MultiTaskGP(X, Y, 1)
    exact.load_state_dict(ours.state_dict())
    assert not ours.is_exact and ours.num_inducing < 300
    mll = ExactMarginalLogLikelihood(exact.likelihood, exact)
    output = exact(*exact.train_inputs)
    loss = -mll(output, exact.train_targets, *exact.train_inputs)
    slopes = torch.autograd.grad(loss, list(exact.parameters()), allow_unused=True)
    for p, slope in zip(exact.parameters(), slopes, strict=True):
        # in logarithms what is small and positive, as the noise
        assert slope is None or (slope * p.detach().abs().clamp_max(1)).max() < 0.02
    expected, found = exact.posterior(points()), ours.posterior(points())
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.variance, expected.variance, rtol=0, atol=1e-4)
    assert 0 < found.variance.max() < 0.02


def test_observations_of_one_task_tell_of_the_other() -> None:
    """Conditioning is as with all data from the start."""
    X, Y = data()
    kwargs: dict[str, Any] = {"inducing_points": FEW, "outcome_transform": None}
    torch.manual_seed(0)
    part = SparseMultiTaskGP(X[:20], Y[:20], 1, **kwargs).eval()
    whole = SparseMultiTaskGP(X, Y, 1, **kwargs).eval()
    whole.load_state_dict(part.state_dict())
    more = part.condition_on_observations(X[20:], Y[20:])
    assert isinstance(more, SparseMultiTaskGP)
    for Z in (points(), FEW):
        expected, found = whole.posterior(Z), more.posterior(Z)
        torch.testing.assert_close(found.mean, expected.mean)
        torch.testing.assert_close(found.variance, expected.variance)
    batch = torch.stack([X[20:22], X[22:24]])
    fantasy = part.condition_on_observations(batch, torch.stack([Y[20:22], Y[22:24]]))
    assert isinstance(fantasy, SparseFantasyModel)
    one = part.condition_on_observations(X[22:24], Y[22:24]).posterior(FEW)
    torch.testing.assert_close(fantasy.posterior(FEW).mean[1], one.mean)


def dense_pair(
    column: int = 1, known_noise: bool = False, **options: Any
) -> tuple[MultiTaskGP, SparseMultiTaskGP]:
    """The exact GP, and the sparse posterior with all of its points inducing."""
    X, Y = data(EXACT_SIZE + 2)
    X = moved(X, column)
    others = [j for j in range(3) if j != column]
    if known_noise:
        options["train_Yvar"] = 0.05 + 0.1 * X[:, column, None]
    models = []
    for kind, more in ((MultiTaskGP, {}), (SparseMultiTaskGP, {"inducing_points": X})):
        kernel = RBFKernel(active_dims=others)
        kernel.lengthscale = 0.2
        torch.manual_seed(0)
        models.append(kind(X, Y, column, covar_module=kernel, **options, **more))
    for model in models:
        if not known_noise:
            model.likelihood.noise = torch.tensor([0.1, 0.3]).double()
        model.eval().posterior(X[:1])
    exact, ours = models
    assert not ours.is_exact
    return exact, ours


def moved(X: Tensor, column: int) -> Tensor:
    """Inputs of `data` with the tasks in another column."""
    order = [0, 2]
    order.insert(column, 1)
    return X[..., order]


FANTASIES: list[dict[str, Any]] = [
    {},
    {"column": 0},
    {"column": 2, "output_tasks": [1]},
    {"known_noise": True},
    {"outcome_transform": None, "input_transform": Normalize(3, indices=[0, 2])},
]


@pytest.mark.parametrize("options", FANTASIES)
def test_fantasies_predict_as_botorchs_do(options: dict[str, Any]) -> None:
    """With the tasks' column and without it, where there is an output for each."""
    column, (X, Y) = options.get("column", 1), data(6)
    X, Y = moved(X, column).view(3, 2, 3), Y.view(3, 2, 1)
    noise = {"noise": torch.full_like(Y, 0.2)} if "known_noise" in options else {}
    both = dense_pair(**options)
    pairs = [[model.condition_on_observations(X, Y, **noise) for model in both]]
    if not noise:  # BoTorch's model of tasks cannot sample what has known noise
        sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
        pairs.append([model.fantasize(X[0], sampler) for model in both])
    calls: list[tuple[Tensor, dict[str, Any]]] = [
        (points(), {}),
        (points(), {"output_indices": [0]}),
        (points(), {"output_indices": [1, 0], "observation_noise": True}),
        (points().expand(2, 1, 5, 2), {}),
        (moved(data(5)[0], column), {"observation_noise": True}),
    ]
    for exact, ours in pairs:
        assert isinstance(ours, SparseFantasyModel)
        assert ours.num_outputs == exact.num_outputs == both[0].num_outputs
        for Z, asked in calls:
            found, expected = (each.posterior(Z, **asked) for each in (ours, exact))
            assert found.mean.shape == expected.mean.shape
            torch.testing.assert_close(found.mean, expected.mean)
            torch.testing.assert_close(found.variance, expected.variance)


def test_fantasies_at_known_noise_have_fantasies() -> None:
    """The new noise is the mean of all, or given for each point and task."""
    (X, Y), (_, model) = data(6), dense_pair(known_noise=True, outcome_transform=None)
    X, Y = X.view(3, 2, 3), Y.view(3, 2, 1)
    first = model.condition_on_observations(X, Y, noise=torch.full_like(Y, 0.2))
    second = first.fantasize(X[1], SobolQMCNormalSampler(torch.Size([4])))
    assert second.posterior(points()).mean.shape == (4, 3, 5, 2)
    mean = first.likelihood.noise.mean(-1, keepdim=True)
    torch.testing.assert_close(second.likelihood.noise[..., -2:], mean.expand(3, 2))
    given = torch.rand(5, 2).double()
    noisy = first.posterior(points(), observation_noise=given).variance
    torch.testing.assert_close(noisy, first.posterior(points()).variance + given)


def test_it_serves_what_takes_models() -> None:
    """Leave-one-out, acquisition functions, a summary, Ax's data sets."""
    X, Y = data()
    model = SparseMultiTaskGP(X, Y, 1, inducing_points=FEW).eval()
    assert loo_cv(model).posterior.mean.shape == (NUM, 1, 1)
    transform = ScalarizedPosteriorTransform(torch.tensor([0.0, 1.0]).double())
    acqf = qLogExpectedImprovement(model, best_f=0.0, posterior_transform=transform)
    assert acqf(points().unsqueeze(-2)).shape == (5,)
    assert "outputs" in str(model.summary())
    inputs = SparseMultiTaskGP.construct_inputs(
        SupervisedDataset(X, Y, feature_names=["a", "t", "b"], outcome_names=["y"]),
        task_feature=1,
        max_inducing_points=9,
    )
    assert SparseMultiTaskGP(**inputs).inducing_cap == 9


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"train_X": [[1.0]]}, InputDataError, "train_X"),
    ({"train_X": data()[0] * torch.nan}, InputDataError, "NaN"),
    ({"task_feature": 9}, ValueError, "task_feature"),
    ({"robust": True}, TypeError, "'robust'"),
    ({"output_tasks": [5]}, RuntimeError, "output tasks"),
    ({"objective": "mll"}, InputDataError, "objective"),
    ({"inducing_points": points()}, BotorchTensorDimensionError, "`m x 3`"),
]


@pytest.mark.parametrize(("given", "error", "message"), BAD)
def test_bad_arguments_are_refused(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    X, Y = data()
    with pytest.raises(error, match=message):
        SparseMultiTaskGP(**({"train_X": X, "train_Y": Y, "task_feature": 1} | given))


def test_pickles_and_its_prior_say_the_same() -> None:
    """BoTorch's kernel of tasks has lambdas, which no pickle takes."""
    X, Y = data(12)
    model = SparseMultiTaskGP(X, Y, 1).eval()
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.posterior(X).mean, model.posterior(X).mean)
    exact = MultiTaskGP(X, Y, 1)
    exact.load_state_dict(model.state_dict())
    ours, theirs = (
        [(p.log_prob(f(m)).sum().item()) for _, m, p, f, _ in each.named_priors()]
        for each in (again, exact)
    )
    assert sorted(ours) == pytest.approx(sorted(theirs))
    covariances = list[Tensor]()
    for each in (again, exact):
        kernel = each.covar_module.kernels[1]
        before = kernel.covar_matrix
        kernel._priors["IndexKernelPrior"][2](kernel, torch.tensor([0.25]).double())
        covariances.append(kernel.covar_matrix)
        assert not torch.allclose(before, kernel.covar_matrix)
    assert torch.allclose(*covariances)


WIDE = torch.tensor([[0.0, 0.0, 0.0], [1.0, 5.0, 1.0]]).double()


@pytest.mark.parametrize(
    "transform", [Normalize(3), Normalize(3, bounds=WIDE, transform_on_train=False)]
)
@pytest.mark.parametrize("values", [(0, 2), (1, 3)])
def test_transforms_leave_the_column_of_tasks(transform: Any, values: Any) -> None:
    """BoTorch takes the tasks 0, 0.5 and 1 for 0, 0 and 1, and 2 for 1."""
    X, Y = data(12, values=values)
    with pytest.raises(InputDataError, match="in the tasks' column after"):
        SparseMultiTaskGP(X, Y, 1, input_transform=transform)
    SparseMultiTaskGP(X, Y, 1, input_transform=Normalize(3, indices=[0, 2]))


def test_tasks_are_whole_numbers() -> None:
    X, Y = data(12)
    model, half = SparseMultiTaskGP(X, Y, 1).eval(), X[:1].clone()
    half[0, 1] = 0.5
    for call in (
        lambda: SparseMultiTaskGP(torch.cat([X, half]), torch.cat([Y, Y[:1]]), 1),
        lambda: model.posterior(half).mean,
        lambda: model.condition_on_observations(half, Y[:1]),
    ):
        with pytest.raises(InputDataError, match=r"0\.5 in the tasks' column"):
            call()


def test_tasks_that_there_are_not_are_refused() -> None:
    X, Y = data()
    model = SparseMultiTaskGP(X, Y, 1, inducing_points=FEW).eval()
    fantasy = model.condition_on_observations(X[:4].view(2, 2, 3), Y[:4].view(2, 2, 1))
    assert isinstance(fantasy, SparseFantasyModel)
    new = X[:2] + torch.tensor([0.0, 5.0, 0.0])
    sampler = SobolQMCNormalSampler(torch.Size([3]))
    for asked in (model, fantasy):
        for call in (
            lambda of=asked: of.posterior(new),
            lambda of=asked: of.condition_on_observations(new, Y[:2]),
            lambda of=asked: of.get_fantasy_model(new, Y[:2, 0]),
            lambda of=asked: of.fantasize(new, sampler),
            lambda of=asked: of.posterior(points(2), output_indices=[5]),
        ):
            with pytest.raises(ValueError, match="task features in `X`"):
                call()
        for call in (
            lambda of=asked: of.condition_on_observations(points(2), Y[:2]),
            lambda of=asked: of.get_fantasy_model(points(2), Y[:2, 0]),
            lambda of=asked: of.posterior(points(2)[:, :1]),
        ):
            with pytest.raises(BotorchTensorDimensionError):
                call()


def test_a_likelihood_without_the_tasks_says_so() -> None:
    X, Y = data()
    model = SparseMultiTaskGP(X, Y, 1, inducing_points=FEW)
    mll, output = ExactMarginalLogLikelihood(model.likelihood, model), model(X)
    for given in ((), ([],)):
        with pytest.raises(ValueError, match="Task indices must be provided"):
            mll(output, model.train_targets, *given)
    assert mll(output, model.train_targets, X).isfinite()
