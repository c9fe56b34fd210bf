"""Bad inputs of models, samplers, posteriors, kernels and linear operators."""

from functools import partial
from typing import Any

import argument_rows as bad
import torch
from argument_rows import INF, KERNEL, NAN, NOISE, Row, X, Y, anything, arguments, usual
from botorch.exceptions import UnsupportedError
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import LinearKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_sparse import inducing as i
from botorch_sparse import kernels as k
from botorch_sparse import linear_operators as lo
from botorch_sparse import models as m
from botorch_sparse import posteriors as p

BAD_X = X.clone().index_fill_(0, torch.tensor([3]), NAN)
BAD_Y = BAD_X[:, 0]
EYE = torch.eye(3, dtype=torch.float64)
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
MODEL = m.SparseSingleTaskGP(X, Y.unsqueeze(-1))
TASKS = torch.cat([X, torch.arange(len(X)).to(X).unsqueeze(-1) % 2], dim=-1)
POSTERIOR = p.NystromPosterior.from_data(KERNEL, X, Y, NOISE, X[:4])
ROW = Y.unsqueeze(-1)
INPUTS: list[Any] = [X[0], X * NAN, X.long(), X.half(), [[0.0, 1.0]], "x", None, X[:0]]
OUTCOMES: list[Any] = [Y, ROW[:3], ROW * NAN, ROW.long(), [1.0], None]
SAMPLERS: list[Any] = ["bless", i.BLESSSampler, 3]
CAT_DIMS: list[Any] = [[2], [-3], ["a"], 3, [0.5], [0, 0], [1, -1]]
VARIANCES: list[Any] = [-NOISE, NOISE * 0, NOISE * NAN, NOISE[:3], NOISE[:1], 0.1, "x"]
GRADIENTS = torch.randn(12, 3, dtype=torch.float64)
COVARIANCES: list[Any] = [
    *(-EYE, INDEFINITE, EYE * NAN, EYE / 0, EYE[:2], EYE[0], EYE.long(), [[1.0]], "x")
]
MODULES: dict[str, list[Any]] = {
    "covar_module": [*bad.KERNELS, ZeroMean()],
    "mean_module": [ZeroMean, 0.0],
    "likelihood": ["gaussian", 3.0],
    "input_transform": ["normalize", Normalize, Standardize(1), 3],
    "outcome_transform": ["standardize", Standardize, Normalize(2), 3],
}


MODELS = [
    *[
        row
        for model in (m.SparseSingleTaskGP, m.SubsetSingleTaskGP)
        for row in (
            *anything(partial(model, train_Y=ROW), says="X|input", train_X=INPUTS),
            *anything(partial(model, X), says="Y|dtype", train_Y=OUTCOMES),
            *arguments(partial(model, X, ROW), **MODULES),
            *anything(
                partial(model, X, ROW),
                says="train_Yvar",
                train_Yvar=[ROW - 9, ROW * NAN, 0.1, "x"],
            ),
        )
    ],
    *usual(
        partial(m.SparseSingleTaskGP, X, ROW),
        inducing_sampler=SAMPLERS,
        objective=bad.CHOICE,
        max_memory=bad.WHOLE,
        cat_dims=CAT_DIMS,
        learn_inducing_points=bad.FLAG,
        robust=bad.FLAG,
    ),
    *usual(
        partial(m.SparseMultiTaskGP, TASKS, ROW, 2),
        inducing_sampler=SAMPLERS,
        objective=bad.CHOICE,
        max_memory=bad.WHOLE,
        learn_inducing_points=bad.FLAG,
    ),
    *anything(
        partial(m.SparseMultiTaskGP, train_Y=ROW, task_feature=2),
        says="X|input",
        train_X=[X.numpy(), "x", TASKS * NAN],
    ),
    *anything(
        partial(m.SparseSingleTaskGP, X, ROW),
        says="inducing.points",
        inducing_points=[
            *(X[:, :1], X[:0], X[:3].float(), [[0.0, 0.0]], X * NAN),
            *(X[:4, :1].repeat(1, 3), X.expand(2, -1, -1)),
        ],
    ),
    *usual(
        partial(m.SubsetSingleTaskGP, X, ROW),
        subset_size=bad.WHOLE,
        num_initial=[-1, 2.5, NAN, "2"],
        num_newest=[-1, 2.5, NAN, "2"],
    ),
    *arguments(m.RefitSchedule, every=bad.WHOLE, growth=[1.0, 0.5, NAN, INF, "2"]),
    *arguments(m.training_noise, model=[None, 3.0, m.SparseSingleTaskGP]),
    *arguments(
        partial(p.leave_one_out, X=X, Y=Y, noise=NOISE), posterior=[None, MODEL]
    ),
    *arguments(partial(p.leave_one_out, POSTERIOR, X, noise=NOISE), Y=[None, "x"]),
    *arguments(m.loo_cv, model=[None, 3.0, m.SparseSingleTaskGP]),
]
SUBSET = m.SubsetSingleTaskGP(X, ROW, subset_size=6).eval()
SPARSE = m.SparseSingleTaskGP(X, ROW, inducing_points=X[:4]).eval()
SCALED = m.SparseSingleTaskGP(X, ROW, input_transform=Normalize(2)).eval()
DRAW = torch.Size([2])
FANTASY = SPARSE.fantasize(X[:2], SobolQMCNormalSampler(DRAW, seed=0))
MLL = ExactMarginalLogLikelihood(SPARSE.likelihood, SPARSE)
NO_TENSORS: list[Any] = [X.numpy(), X.tolist(), "x", None, 3.0]
NO_GENERATOR: list[Any] = [0, "x", torch.Generator]
COUNT: list[Any] = [-1, 2.5, NAN, "2", None]


def name_of(model: Any, method: str) -> str:
    """A method of a public class."""
    return f"{type(model).__name__}.{method}"


INPUT_ROWS = [
    row
    for model in (MODEL, SPARSE, SCALED, FANTASY, SUBSET)
    for row in (
        *arguments(model.posterior, name_of(model, "posterior"), X=NO_TENSORS),
        *[
            row
            for given in ({"X": X, "Y": ROW}, {"X": X.numpy(), "Y": Y.numpy()})
            for row in arguments(
                partial(model.condition_on_observations, **given),
                name_of(model, "condition_on_observations"),
                X=NO_TENSORS,
            )
        ],
        *arguments(
            partial(model.condition_on_observations, X),
            name_of(model, "condition_on_observations"),
            Y=NO_TENSORS,
        ),
    )
]
MULTI = m.SparseMultiTaskGP(TASKS, ROW, 2).eval()
METHODS = [
    *INPUT_ROWS,
    *arguments(
        partial(MULTI.condition_on_observations, Y=ROW),
        name_of(MULTI, "condition_on_observations"),
        X=NO_TENSORS,
    ),
    *[
        row
        for model in (MODEL, SPARSE, FANTASY)
        for row in arguments(
            partial(model.fantasize, sampler=SobolQMCNormalSampler(DRAW)),
            name_of(model, "fantasize"),
            X=NO_TENSORS,
        )
    ],
    *anything(
        partial(SPARSE.get_fantasy_model, targets=Y),
        name_of(SPARSE, "get_fantasy_model"),
        says="inputs",
        inputs=[X.numpy(), "x", X[:, :1]],
    ),
    *anything(
        partial(MULTI.get_fantasy_model, targets=Y),
        name_of(MULTI, "get_fantasy_model"),
        says="inputs",
        inputs=[X.numpy(), "x", X],
    ),
    *anything(
        SPARSE.remember,
        name_of(SPARSE, "remember"),
        says="X|dimension|r x d",
        X=[*NO_TENSORS, X[:, :1], X[None]],
    ),
    *arguments(
        SPARSE.resparsify, name_of(SPARSE, "resparsify"), generator=NO_GENERATOR
    ),
    *arguments(
        SPARSE.certificate,
        name_of(SPARSE, "certificate"),
        method=bad.CHOICE,
        delta=bad.PROBABILITY,
    ),
    *arguments(
        partial(SPARSE.custom_fit, MLL),
        name_of(SPARSE, "custom_fit"),
        rounds=bad.WHOLE,
        max_fit_inducing_points=bad.WHOLE,
    ),
    *anything(
        partial(SUBSET.add_observations, Y=ROW),
        name_of(SUBSET, "add_observations"),
        says="X",
        X=[*NO_TENSORS, X[:3], X * NAN, X.float()],
    ),
    *arguments(
        partial(SUBSET.add_observations, X, ROW),
        name_of(SUBSET, "add_observations"),
        Yvar=[0.1, "x", ROW],
        generator=NO_GENERATOR,
    ),
    *arguments(
        SUBSET.reselect,
        name_of(SUBSET, "reselect"),
        generator=NO_GENERATOR,
        num_newest=COUNT,
    ),
    *arguments(SUBSET.error_bounds, name_of(SUBSET, "error_bounds"), X=NO_TENSORS),
    *arguments(
        partial(SUBSET.error_bounds, X),
        name_of(SUBSET, "error_bounds"),
        approximation=bad.CHOICE,
        method=bad.CHOICE,
        delta=bad.PROBABILITY,
    ),
    *anything(
        SUBSET.set_subset,
        name_of(SUBSET, "set_subset"),
        says="ind|rows",
        indices=[[0, 1], "x", torch.tensor([99]), torch.tensor([0, 0]), Y],
    ),
    *arguments(
        m.RefitSchedule().is_due, "RefitSchedule.is_due", num_observations=COUNT
    ),
    *arguments(
        m.RefitSchedule().record, "RefitSchedule.record", num_observations=COUNT
    ),
    *arguments(m.RefitSchedule().fit, "RefitSchedule.fit", mll=[None, MODEL, "x"]),
    *arguments(
        m.RefitSchedule().load_state_dict,
        "RefitSchedule.load_state_dict",
        says="state|last_fit",
        state=[None, {}, {"last_fit": "x"}, {"last_fit": -1}, [1]],
    ),
]
CERTIFICATES = [
    row
    for certify in (i.accuracy_certificate, i.accuracy_certificates)
    for row in (
        *arguments(
            partial(certify, POSTERIOR, X, NOISE),
            method=bad.CHOICE,
            delta=bad.PROBABILITY,
        ),
        *anything(
            partial(certify, POSTERIOR, noise=NOISE),
            says="X",
            X=[X[:, :1], X[0], [[0.0, 0.0]], BAD_X],
        ),
        *anything(partial(certify, POSTERIOR, X), says="noise", noise=VARIANCES),
        *arguments(partial(certify, X=X, noise=NOISE), posterior=[None, MODEL]),
    )
]


def drawn(sampler: i.InducingPointSampler, given: dict[str, torch.Tensor]) -> object:
    """Inducing points of some data."""
    return sampler(KERNEL, **given, generator=torch.Generator(), variance=Y)


EXACT = partial(i.exact_gradients, covar_module=KERNEL, X=X, error=Y, noise=NOISE)
PILOT = partial(
    i.pilot_gradients,
    covar_module=KERNEL,
    X=X,
    error=Y,
    noise=NOISE,
    subset=torch.arange(4),
)
SMALLEST = partial(
    i.smallest_subset_size, covar_module=KERNEL, X=X, order=torch.arange(12)
)
INDUCING = [
    *usual(i.BLESSSampler, step=[1.0, 0, NAN, INF, "2"]),
    *usual(i.CertifiedSampler, growth=[1.0, NAN, INF, "2"]),
    *usual(i.PosteriorVarianceSampler),
    *usual(i.RecursiveRLSSampler),
    *usual(i.SamplerInducingPointAllocator, sampler=SAMPLERS, noise=bad.POSITIVE),
    *[
        row
        for sampler in (
            i.BLESSSampler(),
            i.CertifiedSampler(),
            i.PosteriorVarianceSampler(),
            i.RecursiveRLSSampler(),
        )
        for row in anything(
            partial(drawn, sampler),
            type(sampler).__name__,
            says="X|noise",
            given=[{"X": BAD_X, "noise": NOISE}, {"X": X, "noise": BAD_Y}],
        )
    ],
    *CERTIFICATES,
    Row(
        "accuracy_certificate",
        "a batch",
        partial(i.accuracy_certificate, POSTERIOR, X.repeat(2, 1, 1), NOISE),
        ("Use accuracy_certificates",),
        UnsupportedError,
    ),
    *arguments(i.variance_inflation, r=[-1.0, "2"]),
    *[
        row
        for gradients in (EXACT, PILOT)
        for row in (
            *arguments(
                gradients, reading=bad.CHOICE, covar_module=[*bad.KERNELS, None]
            ),
            *anything(
                gradients,
                says="X|error|noise",
                X=[X[0], X[:3], [[0.0, 0.0]], BAD_X],
                error=[Y[:3], ROW, [1.0], BAD_Y],
                noise=[NOISE[:3], 0.1, BAD_Y],
            ),
        )
    ],
    *arguments(PILOT, subset=[[0, 1], "x"]),
    *anything(
        partial(i.select_by_gradient_diversity, num=3),
        says="gradients|num",
        gradients=[
            *(GRADIENTS[:0], [[0.0]], "x", GRADIENTS * NAN, GRADIENTS.long()),
            GRADIENTS[None],
        ],
    ),
    *arguments(
        partial(i.select_by_gradient_diversity, GRADIENTS), num=[-1, 2.5, NAN, "2", 99]
    ),
    *anything(
        partial(i.select_by_gradient_diversity, GRADIENTS, 3),
        says="forced|noise_scale|num",
        forced=[[99], [-1], [0.5], [0, 1, 2, 3], [0, 0]],
        noise_scale=bad.NON_NEGATIVE,
    ),
    *arguments(
        SMALLEST, covar_module=bad.KERNELS, tolerance=[0.0, 1.0, -1.0, NAN, "2"]
    ),
    *anything(
        SMALLEST,
        says="X|order|forced",
        X=[[[0.0, 0.0]], "x", X * NAN],
        order=[[0, 1], "x", torch.tensor([99])],
    ),
]
ROWS_OF_X = p.RepeatedRows.find(X)
GIVEN = {"covar_module": KERNEL, "X": X, "Y": Y, "noise": NOISE, "inducing_points": X}
POSTERIORS = [
    *anything(
        p.factorize_inducing_covariance,
        says="covariance|kernel",
        covariance=COVARIANCES,
    ),
    *arguments(
        partial(p.factorize_inducing_covariance, EYE),
        relative_residual=[-1.0, NAN, "x", 2.0],
    ),
    *anything(
        partial(p.fold_repeats, ROWS_OF_X, Y), says="noise", noise=[NOISE[:3], 0.1]
    ),
    *anything(
        partial(p.fold_repeats, ROWS_OF_X, noise=NOISE), says="Y", Y=[Y[:3], [1.0]]
    ),
    *anything(p.RepeatedRows.find, "RepeatedRows", says="X", X=[X[0], [[1.0]], "x"]),
    *anything(
        partial(p.NystromPosterior.from_data, **GIVEN),
        "NystromPosterior",
        says="inducing|noise|X|Y|kernel|covar_module",
        inducing_points=[X[:, :1], X[0], X[None], X * NAN, [[0.0, 0.0]]],
        noise=VARIANCES,
        Y=[Y[:3], ROW, Y * NAN, [1.0]],
        X=[X[0], X[:3], [[1.0]], BAD_X],
        covar_module=[*bad.KERNELS, None],
    ),
    *arguments(
        partial(POSTERIOR.condition, X=X, Y=Y, noise=NOISE),
        "NystromPosterior",
        X=[BAD_X, [[1.0]]],
        Y=[BAD_Y, [1.0]],
        noise=[BAD_Y, 0.1],
    ),
    *anything(
        partial(p.NystromFeatures.of, KERNEL),
        "NystromFeatures",
        says="inducing",
        inducing_points=[X[0], X * NAN, [[0.0, 0.0]]],
    ),
]
OTHERS = [
    *arguments(
        partial(k.kernel_for_fit, dtype=torch.float32), kernel=[*bad.KERNELS, None]
    ),
    *arguments(partial(k.dense_covariance, KERNEL), X=[[[0.0, 0.0]], "x"]),
    *arguments(partial(k.dense_covariance, X=X), kernel=[*bad.KERNELS, None]),
    *arguments(partial(k.in_double, dtype=torch.float32), module=[*bad.KERNELS, None]),
    *arguments(partial(k.kernel_at, index=()), kernel=[*bad.KERNELS, None]),
    *arguments(partial(k.mixed_kernel, X, ROW), cat_dims=CAT_DIMS),
    *arguments(k.TanimotoKernel, says="blocks", blocks=[(), (0,), (2.5,), ("a",)]),
    *arguments(partial(k.prior_variance, KERNEL), X=[[[0.0, 0.0]], "x"]),
    *arguments(partial(k.prior_variance, X=X), kernel=[*bad.KERNELS, None]),
    *arguments(partial(k.shrink_lengthscales, KERNEL), factor=[*bad.POSITIVE, 1.5]),
    *arguments(
        partial(k.shrink_lengthscales, factor=0.5), covar_module=[*bad.KERNELS, None]
    ),
    *anything(
        partial(k.shrink_lengthscales, factor=0.5),
        says="lengthscale",
        covar_module=[LinearKernel()],
    ),
    *anything(lo.RankOneUpdatedLinearOperator, says="U", U=[Y, [[1.0]], "x"]),
    *anything(
        lo.UpdatableCholeskyLinearOperator, says="[Cc]hol", chol=[Y, X, [[1.0]], "x"]
    ),
]
ROWS: list[Row] = [*MODELS, *METHODS, *INDUCING, *POSTERIORS, *OTHERS]
