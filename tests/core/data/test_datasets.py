"""Images in, examples out: the shipped data sets."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from core.config import DataConfig
from core.data.datasets import load_credits, load_dataset
from core.presets import collection_config
from tests.helpers.picture_files import encoded, halves


def test_glyphs_are_all_there_with_licences_and_credits():
    """6,456 drawings by four houses; every licence has its credit line."""
    config = DataConfig()
    dataset = load_dataset(config)
    assert len(dataset) == 6456
    assert dataset.metadata["style"].value_counts().to_dict() == {
        "noto": 1637,
        "twemoji": 1618,
        "openmoji": 1617,
        "fluent": 1584,
    }
    lines = load_credits(config)["lines"]
    assert set(lines) == set(dataset.metadata["style"])
    licences = dataset.metadata.groupby("style")["license"].first()
    words = {"CC-BY-4.0": "CC BY 4.0", "CC-BY-SA-4.0": "CC BY-SA 4.0"}
    for house, licence in licences.items():
        assert words.get(licence, licence) in lines[house]


def test_fashion2_is_all_there():
    """5,000 grey images in two classes; the small preset mixes them evenly."""
    small = load_dataset(collection_config("fashion2").data)
    assert small.pixels.shape == (1000, 1, 16, 16)
    assert np.bincount(small.labels).tolist() == [525, 475]
    config = collection_config("fashion2", "gpu").data
    dataset = load_dataset(config)
    assert dataset.pixels.shape == (5000, 1, 32, 32)
    assert dataset.class_names == (("Bag",), ("Sneaker",))
    assert set(load_credits(config)["lines"]) == set(dataset.metadata["license"])


def test_a_class_is_a_combination_of_labels():
    """House x subject: equal labels mean equal values, whatever the order of rows."""
    dataset = load_dataset(collection_config("glyphs").data)
    assert len(dataset) == 2181
    rows = dataset.metadata[["style", "subgroup"]].to_numpy()
    expected = [dataset.class_names[label] for label in dataset.labels]
    assert [tuple(row) for row in rows] == expected
    assert (np.diff(dataset.ids) > 0).all()


def test_images_are_the_stored_pixels():
    """Float images in [-1, 1] are the file's own values."""
    dataset = load_dataset(DataConfig(limit=3))
    for data, image in zip(dataset.encoded, dataset.images(), strict=True):
        stored = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        expected = stored.transpose(2, 0, 1) / 127.5 - 1
        np.testing.assert_allclose(image.numpy(), expected, atol=1e-6)


def test_bad_settings_get_a_sentence(tmp_path):
    """A missing file, a missing column, a filter that keeps nothing."""
    with pytest.raises(FileNotFoundError, match="There is no data set at"):
        load_dataset(DataConfig(path=str(tmp_path / "none.parquet")))
    path = tmp_path / "bare.parquet"
    pd.DataFrame({"id": [1], "image": [encoded(halves())]}).to_parquet(path)
    with pytest.raises(ValueError, match="has no column 'group', 'style'; it has 'id'"):
        load_dataset(DataConfig(path=str(path)))
    with pytest.raises(ValueError, match="No image of 'glyphs64.parquet' passes"):
        load_dataset(DataConfig(keep=(("style", ("nobody",)),)))


def test_a_damaged_file_gets_a_sentence_and_folders_add_no_columns(tmp_path):
    """A folder called "a=b" is no column; what pyarrow says is for nobody."""
    path = tmp_path / "id=x" / "set.parquet"
    path.parent.mkdir()
    rows = pd.DataFrame({"id": [1], "image": [encoded(halves(size=64))]})
    rows.to_parquet(path)
    config = DataConfig(path=str(path), label_columns=(), keep=(), limit=None)
    assert load_dataset(config).ids.tolist() == [1]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="^The data set 'set.parquet' is damaged. Get"):
        load_dataset(config)
