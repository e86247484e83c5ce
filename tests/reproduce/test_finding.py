"""Collections are found as people have them, and what is missing or different is named."""

from __future__ import annotations

import os
import stat
import zipfile

import h5py
import numpy as np
import pytest

from field_collections import write_collection, zipped
from holmes.errors import HolmesError
from holmes.reproduce.finding import find, missing_lines, size_remarks
from holmes.reproduce.published import COLLECTIONS, curves
from holmes.reproduce.trees import ZipTree, zip_trees

ALL = tuple(COLLECTIONS)


def test_three_layouts_at_once(tmp_path):
    write_collection(tmp_path / "activitynet", "activitynet", "bigfile")
    zipped(write_collection(tmp_path / "charades", "charades", "hdf5"), tmp_path / "charades.zip")
    write_collection(tmp_path / "PRVR_data" / "PRVR" / "tvr", "tvr", "hdf5")
    found = find(tmp_path)
    assert [*found.usable] == [*ALL]
    assert [each.form for each in found.usable.values()] == ["BigFile", "HDF5", "HDF5"]
    assert [each.packed for each in found.usable.values()] == [False, True, False]
    assert found.usable["charades"].sizes == {"train": (10, 20), "val": (6, 12), "test": (6, 12)}


def test_the_folder_of_one_collection_itself(tmp_path):
    write_collection(tmp_path / "tvr", "tvr")
    assert [*find(tmp_path / "tvr").usable] == ["tvr"]
    lines = missing_lines(find(tmp_path / "tvr"), ALL)
    assert sum("get charades.zip" in line and "HuiGuanLab/ms-sl" in line for line in lines) == 1


def test_of_two_copies_the_complete_unpacked_one(tmp_path):
    write_collection(tmp_path / "broken", "charades", splits=("train",))
    zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    assert find(tmp_path).collections["charades"].packed
    write_collection(tmp_path / "whole", "charades")
    assert find(tmp_path).collections["charades"].tree.where == tmp_path / "whole"


def test_a_folder_behind_a_link_and_a_circle_of_links(tmp_path):
    write_collection(tmp_path / "elsewhere" / "tvr", "tvr")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "elsewhere" / "back")
    assert [*find(tmp_path / "data").usable] == ["tvr"]


def test_results_below_the_data_are_not_searched(tmp_path):
    zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    write_collection(tmp_path / "results" / "unpacked" / "charades", "charades")
    assert not find(tmp_path).collections["charades"].packed
    assert find(tmp_path, without=tmp_path / "results").collections["charades"].packed


def test_a_missing_split_is_named(tmp_path):
    write_collection(tmp_path / "charades", "charades", splits=("train", "val"))
    found = find(tmp_path)
    assert not found.usable
    (line,) = [line for line in missing_lines(found, ("charades",)) if "lacks" in line]
    assert "TextData/charadestest.caption.txt" in line


def test_missing_features_are_named(tmp_path):
    folder = write_collection(tmp_path / "charades", "charades")
    (folder / "FeatureData" / "i3d_rgb_lgi" / "id.txt").unlink()
    (folder / "TextData" / "roberta_charades_query_feat.hdf5").unlink()
    assert find(tmp_path).collections["charades"].missing == (
        "FeatureData/i3d_rgb_lgi (a BigFile or feature.hdf5)",
        "TextData/roberta_charades_query_feat.hdf5",
    )


@pytest.mark.parametrize("form", ["bigfile", "hdf5"])
def test_another_width_is_remarked(tmp_path, form):
    write_collection(tmp_path, "charades", form, video_width=12)
    assert "video features are 12 wide, the field's 1024" in find(tmp_path).collections["charades"].remarks


def test_the_width_is_not_read_through_a_link_of_an_hdf5_file(tmp_path):
    folder = write_collection(tmp_path / "data", "charades", "hdf5")
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = np.zeros((3, 99), np.float32)
    with h5py.File(folder / "FeatureData" / "i3d_rgb_lgi" / "feature.hdf5", "a") as file:
        file["_first"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "x")
    assert not any("wide" in remark for remark in find(tmp_path).collections["charades"].remarks)


def test_an_unreadable_feature_file_is_named(tmp_path):
    folder = write_collection(tmp_path, "charades", "hdf5")
    (folder / "FeatureData" / "i3d_rgb_lgi" / "feature.hdf5").write_bytes(b"no HDF5")
    assert "not a readable HDF5 file" in find(tmp_path).faults[0]


def test_sizes_are_compared_with_the_fields():
    tvr, charades = COLLECTIONS["tvr"], COLLECTIONS["charades"]
    assert size_remarks(tvr, {"train": (17_435, 87_175), "test": (2_179, 10_895)}) == []
    assert "87,174" in size_remarks(tvr, {"train": (17_435, 87_174), "test": (2_179, 10_895)})[0]
    assert size_remarks(charades, {"train": (5_338, 12_400), "test": (1_334, 3_720)}) == []  # "about"


def test_swapped_val_and_test_are_suspected():
    sizes = {"train": (17_435, 87_175), "val": (2_179, 10_895), "test": (1_089, 5_445)}
    assert any("swapped" in remark for remark in size_remarks(COLLECTIONS["tvr"], sizes))


def test_a_truncated_zip_is_named_and_the_rest_is_used(tmp_path):
    write_collection(tmp_path / "tvr", "tvr")
    path = zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found = find(tmp_path)
    assert [*found.usable] == ["tvr"]
    assert "charades.zip is truncated or damaged" in found.faults[0]


def test_a_zip_with_a_damaged_file_leaves_nothing_half_written(tmp_path):
    path = zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    (tree,) = zip_trees(path)
    entry = tree.entries["FeatureData/i3d_rgb_lgi/feature.bin"]
    content = bytearray(path.read_bytes())
    at = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    content[at : at + 8] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(HolmesError, match=r"damaged at FeatureData/i3d_rgb_lgi/feature\.bin"):
        tree.unpack([*tree.sizes], tmp_path / "out", lambda count: None)
    assert not (tmp_path / "out" / "FeatureData" / "i3d_rgb_lgi" / "feature.bin").exists()


def test_names_in_a_zip_cannot_lead_out_of_the_target(tmp_path):
    path = tmp_path / "evil.zip"
    link = zipfile.ZipInfo("c/TextData/link.caption.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("c/TextData/charadestrain.caption.txt", "a#enc#0 words\n")
        for name in (
            "c/TextData/../../escaped",
            "c/TextData/..",
            "/TextData/a\\..\\b",
            "c/FeatureData/.../x",
        ):
            archive.writestr(name, "out")
        archive.writestr(link, "/etc/passwd")
    (tree,) = [tree for tree in zip_trees(path) if "TextData/charadestrain.caption.txt" in tree.sizes]
    assert [*tree.sizes] == ["TextData/charadestrain.caption.txt"]
    tree.unpack([*tree.sizes], tmp_path / "out", lambda count: None)
    written = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(written) == ["evil.zip", "out/TextData/charadestrain.caption.txt"]


def test_a_link_in_the_target_is_not_followed(tmp_path):
    path = zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path, tmp_path / "out" / "TextData")
    (tree,) = zip_trees(path)
    with pytest.raises(HolmesError, match="leads out of"):
        tree.unpack([*tree.sizes], tmp_path / "out", lambda count: None)


def test_a_zip_that_unpacks_to_more_than_the_disk_is_refused_before_it_is_written(tmp_path):
    path = zipped(write_collection(tmp_path / "charades", "charades"), tmp_path / "charades.zip")
    (tree,) = zip_trees(path)
    huge = ZipTree(tree.where, {name: 1 << 60 for name in tree.sizes}, tree.entries)
    with pytest.raises(HolmesError, match="GB left"):
        huge.unpack([*huge.sizes], tmp_path / "out", lambda count: None)
    assert not [*(tmp_path / "out").iterdir()]


def test_the_published_curves_are_those_of_the_logs():
    best = {
        name: (curve.best, curve.SumR.index(curve.best), len(curve.SumR)) for name, curve in curves().items()
    }
    assert best == {
        "activitynet": (156.8, 88, 100),
        "charades": (80.6, 41, 63),
        "tvr": (194.2, 96, 100),
        "tvr_dual": (198.6, 134, 150),
    }
