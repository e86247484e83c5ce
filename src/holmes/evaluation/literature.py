"""Published figures of the paper and of other methods, for comparison.

R@1, R@5, R@10, R@100 and SumR in percent; None where a publication gives only the sum. All trained methods
select the best epoch on the evaluation split itself. A method that does not use the data set's usual features
names those it uses behind a comma.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holmes.config.baseline_presets import METHODS as BASELINES
from holmes.config.presets import CLIP_TITLES

Figures = tuple[float | None, float | None, float | None, float | None, float]


@dataclass(frozen=True)
class DataSet:
    """What is published about one data set."""

    title: str
    collection: str  # the names of its caption files
    methods: dict[str, Figures]
    ablation: dict[int, Figures]  # row of the paper's ablation table → figures
    ablated: str = "Holmes"  # the model that the ablation table starts from


def only_sum(total: float) -> Figures:
    return (None, None, None, None, total)


ACTIVITYNET = DataSet(
    title="ActivityNet Captions",
    collection="activitynet",
    methods={
        "MS-SL": (7.1, 22.5, 34.7, 75.8, 140.1),
        "GMMFormer": (8.3, 24.9, 36.7, 76.1, 146.0),
        "GMMFormerV2": (8.9, 27.1, 40.2, 78.7, 154.9),
        "HLFormer": (8.7, 27.1, 40.1, 79.0, 154.9),
        "DreamPRVR": (8.7, 27.5, 40.3, 79.5, 156.1),
        "RAL": only_sum(156.1),
        "Holmes": (9.3, 27.8, 40.5, 79.1, 156.8),
        "TRACE": only_sum(157.3),
        "zero-shot, CLIP-L/14": only_sum(172.9),
        "TF-PRVR, CLIP-L/14": only_sum(193.9),
        "GMMFormerV2, CLIP-L/14": only_sum(196.9),
        "MSC-PRVR, CLIP-L/14": only_sum(202.1),
        "zero-shot, SigLIP-L/14": only_sum(178.7),
        "TF-PRVR, SigLIP-L/14": only_sum(198.5),
        "zero-shot, EVA-CLIP-L/14": only_sum(180.4),
        "TF-PRVR, EVA-CLIP-L/14": only_sum(200.8),
    },
    ablation={
        0: (9.3, 27.8, 40.5, 79.1, 156.8),
        1: (8.6, 26.6, 39.4, 78.6, 153.2),
        2: (8.5, 26.6, 39.8, 78.6, 153.6),
        3: (8.7, 27.1, 39.8, 78.7, 154.4),
        5: (8.8, 27.3, 40.0, 78.8, 155.0),
        6: (8.9, 27.0, 40.0, 78.9, 154.8),
        7: (9.1, 27.4, 40.1, 78.9, 155.5),
        8: (8.8, 27.4, 39.7, 78.7, 154.7),
        9: (9.1, 27.6, 40.1, 78.9, 155.6),
        10: (8.7, 27.1, 39.7, 78.6, 154.0),
        11: (8.7, 27.3, 40.0, 78.7, 154.7),
        12: (9.0, 27.5, 40.3, 78.8, 155.6),
    },
)

CHARADES = DataSet(
    title="Charades-STA",
    collection="charades",
    methods={
        "MS-SL": (1.8, 7.1, 11.8, 47.7, 68.4),
        "GMMFormer": (2.1, 7.8, 12.5, 50.6, 72.9),
        "GMMFormerV2": (2.5, 8.6, 13.9, 53.2, 78.2),
        "HLFormer": (2.6, 8.5, 13.7, 54.0, 78.7),
        "DreamPRVR": (2.6, 8.7, 14.5, 54.2, 80.0),
        "Holmes": (2.3, 9.5, 15.2, 53.6, 80.6),
        "TRACE": only_sum(81.1),
        "zero-shot, CLIP-L/14": only_sum(73.1),
        "GMMFormerV2, CLIP-L/14": only_sum(94.2),
        "MSC-PRVR, CLIP-L/14": only_sum(99.7),
    },
    ablation={
        0: (2.3, 9.5, 15.2, 53.6, 80.6),
        1: (2.4, 8.8, 14.6, 52.6, 78.4),
        2: (2.4, 8.6, 14.4, 52.6, 78.0),
        3: (2.3, 9.2, 14.9, 52.6, 79.1),
        5: (2.3, 8.9, 14.6, 52.7, 78.5),
        6: (2.3, 8.5, 14.3, 53.4, 78.5),
        7: (2.3, 9.3, 14.8, 53.0, 79.3),
        8: (2.3, 8.3, 14.2, 52.7, 77.4),
        9: (2.3, 9.0, 15.0, 53.1, 79.4),
        10: (2.1, 8.7, 14.4, 52.4, 77.7),
        11: (2.3, 8.6, 14.2, 53.5, 78.6),
        12: (2.3, 9.0, 15.0, 53.1, 79.4),
    },
)

TVR = DataSet(
    title="TVR",
    collection="tvr",
    methods={
        "MS-SL": (13.5, 32.1, 43.4, 83.4, 172.4),
        "GMMFormer": (13.9, 33.3, 44.5, 84.9, 176.6),
        "GMMFormerV2": (16.2, 37.6, 48.8, 86.4, 189.1),
        "HLFormer": (15.7, 37.1, 48.5, 86.4, 187.7),
        "DreamPRVR": (17.4, 39.0, 50.4, 86.2, 193.1),
        "RAL": only_sum(198.8),
        "Holmes": only_sum(194.2),
        "Holmes, dual query": (18.4, 40.7, 52.0, 87.5, 198.6),
        "TRACE": only_sum(194.6),
        "zero-shot, CLIP-L/14": only_sum(167.2),
        "GMMFormerV2, CLIP-L/14": only_sum(258.1),
        "MSC-PRVR, CLIP-L/14": only_sum(263.1),
    },
    ablation={
        0: (18.4, 40.7, 52.0, 87.5, 198.6),
        1: (16.8, 38.4, 50.5, 87.5, 193.1),
        2: (17.1, 38.8, 50.6, 87.6, 194.1),
        3: (17.3, 40.2, 51.5, 87.7, 196.7),
        5: (17.2, 39.4, 50.6, 87.5, 194.7),
        6: (17.0, 39.8, 51.1, 87.5, 195.4),
        7: (17.9, 40.0, 51.4, 87.8, 197.0),
        8: (17.4, 39.7, 51.5, 87.7, 196.3),
        9: (17.7, 40.4, 51.4, 87.8, 197.3),
        10: (17.3, 39.2, 50.7, 87.7, 194.9),
        11: (17.6, 39.8, 51.2, 87.5, 196.1),
        12: (18.2, 40.4, 51.5, 87.4, 197.5),
    },
    ablated="Holmes, dual query",
)


def on_features(data: DataSet, features: str) -> DataSet:
    """What is published about a data set with these features; maybe nothing."""
    some = {name: found for name, found in data.methods.items() if name.endswith(f", {features}")}
    return replace(data, title=f"{data.title} with {features} features", methods=some, ablation={})


DATA_SETS = (ACTIVITYNET, CHARADES, TVR)
TRAINING_FREE = ("zero-shot", "TF-PRVR")  # they have no epoch to select
PUBLISHED = {
    **{data.collection: data for data in DATA_SETS},
    "tvr_dual": TVR,
    **{f"{method}_{data.collection}": data for method in BASELINES for data in DATA_SETS},
    **{
        f"{data.collection}_{model}": on_features(data, title)
        for data in DATA_SETS
        for model, title in CLIP_TITLES.items()
    },
}


# The further rows of the paper's main table; a method that is not printed for a data set is left out.
OTHER_METHODS: dict[str, dict[str, Figures]] = {
    "activitynet": {
        "RIVRL": (5.2, 18.0, 28.2, 66.4, 117.8),
        "CLIP4Clip": (5.9, 19.3, 30.4, 71.6, 127.3),
        "Cap4Video": (6.3, 20.4, 30.9, 72.6, 130.2),
        "ReLoCLNet": (5.7, 18.9, 30.0, 72.0, 126.6),
        "CONQUER": (6.5, 20.4, 31.8, 74.3, 133.1),
        "JSG": (6.8, 22.7, 34.8, 76.1, 140.5),
        "MS-SL++": (7.0, 23.1, 35.2, 75.8, 141.1),
        "PEAN": (7.4, 23.0, 35.5, 75.9, 141.8),
        "LH": (7.4, 23.5, 35.8, 75.8, 142.4),
        "BGM-Net": (7.2, 23.8, 36.0, 76.9, 143.9),
        "MamFusion": (8.0, 25.4, 37.2, 76.8, 147.4),
        "ProtoPRVR": (7.9, 24.9, 37.2, 77.3, 147.4),
        "DL-DKD": (8.0, 25.0, 37.5, 77.1, 147.6),
        "ARL": (8.3, 24.6, 37.4, 78.0, 148.3),
        "MGAKD": (7.9, 25.7, 38.3, 77.8, 149.6),
        "DL-DKD++": (8.3, 25.5, 38.3, 77.8, 149.9),
    },
    "charades": {
        "RIVRL": (1.6, 5.6, 9.4, 37.7, 54.3),
        "CLIP4Clip": (1.8, 6.5, 10.9, 44.2, 63.4),
        "Cap4Video": (1.9, 6.7, 11.3, 45.0, 65.0),
        "ReLoCLNet": (1.2, 5.4, 10.0, 45.6, 62.3),
        "CONQUER": (1.8, 6.3, 10.3, 47.5, 66.0),
        "JSG": (2.4, 7.7, 12.8, 49.8, 72.7),
        "MS-SL++": (1.8, 7.6, 12.0, 48.4, 69.7),
        "PEAN": (2.7, 8.1, 13.5, 50.3, 74.7),
        "LH": (2.1, 7.5, 12.9, 50.1, 72.7),
        "BGM-Net": (1.9, 7.4, 12.2, 50.1, 71.6),
        "MamFusion": (2.0, 8.8, 14.2, 51.5, 76.5),
        "DL-DKD++": (1.9, 7.1, 12.3, 49.8, 71.1),
    },
    "tvr": {
        "RIVRL": (9.4, 23.4, 32.2, 70.6, 135.6),
        "CLIP4Clip": (9.9, 24.3, 34.3, 72.5, 141.0),
        "Cap4Video": (10.3, 26.4, 36.8, 74.0, 147.5),
        "ReLoCLNet": (10.0, 26.5, 37.3, 81.3, 155.1),
        "CONQUER": (11.0, 28.9, 39.6, 81.3, 160.8),
        "MS-SL++": (13.6, 33.1, 44.2, 83.5, 174.5),
        "PEAN": (13.5, 32.8, 44.1, 83.9, 174.2),
        "LH": (13.2, 33.2, 44.4, 85.5, 176.3),
        "BGM-Net": (14.1, 34.7, 45.9, 85.2, 179.9),
        "MamFusion": (14.2, 33.9, 44.9, 84.5, 177.5),
        "ProtoPRVR": (15.4, 35.9, 47.5, 86.4, 185.1),
        "DL-DKD": (14.4, 34.9, 45.8, 84.9, 179.9),
        "ARL": (15.6, 36.3, 47.7, 86.3, 185.9),
        "MGAKD": (16.0, 37.8, 49.2, 87.5, 190.5),
        "DL-DKD++": (15.3, 36.0, 47.5, 86.0, 184.8),
    },
}
# The paper's main table: block → its rows.
MAIN_TABLE = {
    "Text-to-video retrieval": ("RIVRL", "CLIP4Clip", "Cap4Video"),
    "Video corpus moment retrieval": ("ReLoCLNet", "CONQUER", "JSG"),
    "Partially relevant video retrieval": (
        "MS-SL", "MS-SL++", "PEAN", "LH", "BGM-Net", "GMMFormer", "MamFusion", "ProtoPRVR", "DL-DKD", "ARL",
        "MGAKD", "DL-DKD++", "GMMFormerV2", "HLFormer", "DreamPRVR", "Holmes", "Holmes, dual query",
    ),
}  # fmt: skip
# The paper's efficiency table (ActivityNet): ms of training an epoch, million parameters, ms of encoding
# 4,430 videos, ms of encoding, scoring and ranking 15,753 queries, SumR.
EFFICIENCY: dict[str, tuple[float, float, float, float, float]] = {
    "GMMFormer": (38079, 12.85, 5473, 15016, 146.0),
    "HLFormer": (52866, 28.43, 6547, 17001, 154.9),
    "GMMFormerV2": (62458, 30.79, 6578, 17263, 154.9),
    "Holmes": (52658, 30.79, 6556, 17058, 156.8),
}
# Between these values the paper calls SumR stable (TVR); its curves are printed without numbers.
STABLE = {"tau": (0.06, 0.2), "beta": (0.2, 0.5), "dustbin": (0.2, 0.4)}


def main_table(data: DataSet) -> dict[str, dict[str, Figures]]:
    """The printed rows of one data set by block, in the paper's order."""
    known = {**OTHER_METHODS[data.collection], **data.methods}
    return {
        block: {name: known[name] for name in names if name in known} for block, names in MAIN_TABLE.items()
    }


def published_figures(preset: str) -> DataSet | None:
    """What is published about a preset's data set; None for presets of our own."""
    return PUBLISHED.get(preset.removesuffix("_plus"))  # the same data set, beyond the paper
