"""Splits that do not leak, scaling, and PCA against scikit-learn."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from sklearn.decomposition import PCA

from otafl.core.errors import InputError
from otafl.runs.schema import load
from otafl.tasks import datasets
from otafl.tasks.features import DataOptions, PcaOptions, apply_pca, fit_pca, prepare, scale_pixels, split


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((5000, 12)) * np.arange(1, 13) + 3).astype(np.float32)


def test_pca_scores_equal_scikit_learn(samples):
    ours = apply_pca(fit_pca(samples, 5), samples)
    theirs = PCA(5).fit_transform(samples.astype(np.float64))
    signs = np.sign(np.sum(ours * theirs, axis=0))
    np.testing.assert_allclose(ours, signs * theirs / theirs.std(), atol=2e-4)
    assert ours.dtype == np.float32


def test_one_global_standard_deviation_keeps_the_shape_of_the_spectrum(samples):
    scores = apply_pca(fit_pca(samples, 5), samples)
    np.testing.assert_allclose(scores.std(), 1, rtol=1e-5)
    assert scores[:, 0].std() > 1.2 * scores[:, 4].std()


def test_whitened_scores_are_uncorrelated_with_unit_variance(samples):
    scores = apply_pca(fit_pca(samples, 5, whiten=True), samples)
    np.testing.assert_allclose(np.cov(scores.T, bias=True), np.eye(5), atol=1e-4)


def test_pca_signs_do_not_depend_on_the_order_of_samples(samples):
    a, b = fit_pca(samples, 5), fit_pca(samples[::-1], 5)
    np.testing.assert_allclose(a.basis, b.basis, atol=1e-8)


@pytest.mark.parametrize("components", [0, 13, 2.5])
def test_impossible_numbers_of_components(samples, components):
    with pytest.raises(InputError):
        fit_pca(samples, components)


def test_whitening_below_full_rank_is_refused(samples):
    with pytest.raises(InputError, match="lower rank"):
        fit_pca(np.concatenate([samples, samples], axis=1), 13, whiten=True)


def test_split_sizes_of_a_10k_test_set():
    reward, report = split(10_000, 0.2, np.random.default_rng(0))
    assert (len(reward), len(report)) == (2000, 8000)
    assert sorted([*reward, *report]) == list(range(10_000))


def rows(part):
    return {row.tobytes() for row in part.x}


def test_parts_are_disjoint_and_cover_the_data():
    digits = datasets.load("digits")
    task = prepare(DataOptions(validation_fraction=0.1), digits)
    assert [len(part.y) for part in task[:4]] == [1293, 144, 72, 288]
    unit = (digits.x_train / np.float32(16)).astype(np.float32)
    assert rows(task.train) | rows(task.validation) == {row.tobytes() for row in unit}
    assert len(rows(task.train) & rows(task.validation)) == 0
    assert len(rows(task.reward) & rows(task.report)) == 0
    assert all(part.x.dtype == np.float32 and part.y.dtype == np.int32 for part in task[:4])


def test_parts_depend_on_the_split_seed_alone():
    one, same, other = (prepare(DataOptions(split_seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.reward.x, same.reward.x)
    assert rows(one.reward) != rows(other.reward)


def test_images_and_labels_stay_together():
    digits = datasets.load("digits")
    label = {
        (image / np.float32(16)).astype(np.float32).tobytes(): y for image, y in zip(digits.x_train, digits.y_train)
    }
    task = prepare(DataOptions(train_size=500, labels=None), digits)
    assert [label[x.tobytes()] for x in task.train.x] == task.train.y.tolist()
    assert len(task.train.y) == 500


def test_notes_name_what_was_fitted_on_private_data():
    assert prepare(DataOptions()).notes == ()
    assert prepare(DataOptions(pca=PcaOptions(8, fit_on="reward"))).notes == ()
    private = prepare(DataOptions(pca=PcaOptions(8), pixels="standard", labels=(0, 1))).notes
    assert private == (
        "digits: labels 0, 1 only",
        "pixel mean and standard deviation computed on private training data: outside the guarantee",
        "PCA basis fitted on private training data: outside the guarantee",
    )


def test_public_basis_does_not_see_private_data():
    digits = datasets.load("digits")
    options = DataOptions(pca=PcaOptions(8, fit_on="reward"))
    changed = digits._replace(x_train=digits.x_train[:, ::-1].copy())
    np.testing.assert_array_equal(prepare(options, digits).report.x, prepare(options, changed).report.x)


@pytest.mark.parametrize(
    ("pixels", "expected"), [("unit", [0, 0.5, 1]), ("symmetric", [-1, 0, 1]), ("standard", [-1, 1, 3])]
)
def test_pixel_scales(pixels, expected):
    got = scale_pixels(np.array([0, 8, 16], np.uint8), 16, pixels, mean=0.25, std=0.25)
    np.testing.assert_array_equal(got, np.array(expected, np.float32))


def test_standard_pixels_have_mean_zero_and_variance_one():
    task = prepare(DataOptions(pixels="standard"))
    assert abs(task.train.x.mean()) < 1e-5
    assert abs(task.train.x.std() - 1) < 1e-5


def test_options_are_validated_by_a_type_adapter():
    adapter = TypeAdapter(DataOptions)
    options = adapter.validate_python({"name": "mnist", "labels": [0, 1], "pca": {"components": 64}})
    assert options == DataOptions("mnist", labels=(0, 1), pca=PcaOptions(64))
    with pytest.raises(ValidationError):
        adapter.validate_python({"pixels": "bright"})


def test_a_negative_split_seed_is_refused_where_it_is_written(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text('rounds = 2\ntask = { data = "digits" }\nscheme = [{ name = "fedavg" }]')
    with pytest.raises(InputError, match=r"split_seed=-1"):
        load(file, ["task.data.split_seed=-1"])
