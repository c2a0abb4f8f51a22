"""Methods that read features, at every damping and strength, against dense solves."""

import numpy as np
import pandas as pd
import pytest
import torch

from core.config import MethodConfig
from core.explorer.explorer import open_explorer
from core.lenses import Lens
from core.scores.influence import split_reliability
from precompute.retraining.asked import PAPER_DAMPING
from precompute.retraining.strength import USUAL, feature_rows, halves, strengths
from precompute.stages.methods import compute_methods
from tests.conftest import linked_copy

MORE = "32 features, 4 draws"


@pytest.fixture(scope="module")
def asked(tiny_collection, tmp_path_factory):
    """Return an explorer with two strengths of three methods, and what they say."""
    root = linked_copy(tiny_collection, tmp_path_factory.mktemp("strong"))
    work = tmp_path_factory.mktemp("work")
    for dim in (48, 32):
        settings = MethodConfig(dim=dim, num_draws=4)
        only = ("trak", "d-trak", "das")
        compute_methods(root, "glyphs", work, "cpu", only, settings)
    explorer = open_explorer("glyphs", root)
    queries = [explorer.query_from_gallery(i) for i in range(2)]
    yield explorer, queries, *feature_rows(explorer, queries)
    explorer.close()


def test_every_file_is_asked_and_the_app_reads_the_strongest(asked):
    """Of equal draws that with most features; the recipe says how strong each is."""
    explorer, _, rows, facts = asked
    found = [(one.method, one.variant) for one in strengths(explorer)]
    assert ("d-trak", USUAL) in found and ("d-trak", MORE) in found
    assert facts["d-trak"][USUAL]["features"] == 48
    assert facts["d-trak"][MORE] | {"draws": 4} == facts["d-trak"][MORE]
    assert set(rows["variant"]) >= {USUAL, MORE}
    own = rows[(rows["method"] == "d-trak") & (rows["variant"] == MORE)]
    dampings = own["damping"].unique()
    assert np.isnan(dampings).sum() == 1 and len(dampings) == 13
    usual = rows[(rows["method"] == "d-trak") & (rows["variant"] == USUAL)]
    assert usual["damping"].notna().all()  # the own one is the app's to answer


def test_scores_match_a_dense_solve_and_the_app(asked):
    """The formula of TRAK in float64; the app's answer at the same damping."""
    explorer, queries, rows, _ = asked
    for one in strengths(explorer):
        if one.method != "d-trak":
            continue
        phi = one.file.features.double().numpy()
        query = one.queries(explorer, queries, Lens("d-trak")).double().numpy()
        part = rows[(rows["method"] == "d-trak") & (rows["variant"] == one.variant)]
        damping = sorted(part["damping"].dropna())[8]  # float32 inverts it well
        fisher = phi.T @ phi / len(phi) + damping * np.eye(phi.shape[1])
        wanted = query @ np.linalg.solve(fisher, phi.T)
        wanted -= wanted.mean(1, keepdims=True)
        found = np.stack(list(part[part["damping"] == damping]["scores"]))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * wanted.std())
        if one.variant == USUAL:
            answer = explorer.answer(queries[1], Lens("d-trak", damping=damping))
            close = {"rtol": 1e-3, "atol": 1e-3 * wanted.std()}
            np.testing.assert_allclose(answer.scores, found[1], **close)


def test_a_damping_too_small_for_a_score_is_left_out(asked, monkeypatch):
    """Undamped, DAS divides nothing by nothing where features outnumber the images."""
    explorer, queries, rows, _ = asked
    kind = type(strengths(explorer)[0])
    scored = kind.scores

    def undefined(self, features, damping=None):
        return scored(self, features, damping) * (
            1 if damping != PAPER_DAMPING else np.nan
        )

    monkeypatch.setattr(kind, "scores", undefined)
    left, _ = feature_rows(explorer, queries)
    assert PAPER_DAMPING in rows["damping"].values
    pd.testing.assert_frame_equal(
        left, rows[rows["damping"] != PAPER_DAMPING].reset_index(drop=True)
    )


def test_halves_of_features_are_projections_of_their_own(asked):
    """Their mean inner product is the whole one; their agreement is Spearman's."""
    explorer, queries, _, facts = asked
    for one in strengths(explorer):
        features = one.queries(explorer, queries, Lens(one.method))
        parts, scores = [], []
        for columns, file in halves(one.file, features.shape[1]):
            own = features[:, columns] * 2**0.5
            parts.append(own @ file.features.T)
            half = type(one)(one.method, file, one.variant)
            scores.append(half.scores(own, one.dampings().get("own")))
        middle = 2 * (features.shape[1] // 16 * 8)
        whole = features[:, :middle] @ one.file.features[:, :middle].T
        close = {"rtol": 1e-4, "atol": 1e-5 * float(whole.abs().max())}
        torch.testing.assert_close((parts[0] + parts[1]) / 2, whole, **close)
        agree = facts[one.method][one.variant]["halves_agree"]
        assert agree == pytest.approx(split_reliability(*scores), abs=1e-6)
