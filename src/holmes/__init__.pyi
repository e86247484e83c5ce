from holmes.api import build_index, compare, evaluate, find, load_checkpoint, open_store, train, tune
from holmes.cluster.index import ShardedIndex, open_index
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig
from holmes.data.store import Store
from holmes.editing.chapters import Chapter, chapters
from holmes.editing.cut import CutFile, CutSummary, cut
from holmes.editing.export import ExportSummary, export
from holmes.encoders.checkpoint import Checkpoint
from holmes.encoders.hub import pull
from holmes.errors import HolmesError
from holmes.evaluation.per_query import QueryTable
from holmes.evaluation.runs.evaluate import queries
from holmes.evaluation.runs.publish import push
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.calibration import CalibrationSummary
from holmes.index.answer.searcher import Index
from holmes.index.ingest.builder import BuildSummary
from holmes.index.ingest.sync import SyncSummary
from holmes.index.storage.store import IndexDescription
from holmes.moments import Moment
from holmes.results import (
    ComparedSystem,
    ComparisonReport,
    Epoch,
    Evaluation,
    Interval,
    PairedDifference,
    RunReport,
    TrainingResult,
)
from holmes.serve.client import RemoteIndex, connect
from holmes.training.protocol import Protocol
from holmes.training.run import RunOptions
from holmes.training.tuning.search import Tuned

__all__ = [
    "Answer",
    "BuildSummary",
    "CalibrationSummary",
    "Chapter",
    "Checkpoint",
    "ComparedSystem",
    "ComparisonReport",
    "CutFile",
    "CutSummary",
    "Diagnosis",
    "Epoch",
    "Evaluation",
    "ExportSummary",
    "Hit",
    "HolmesConfig",
    "HolmesError",
    "Index",
    "IndexDescription",
    "Interval",
    "Moment",
    "PairedDifference",
    "Protocol",
    "QueryTable",
    "RemoteIndex",
    "RunOptions",
    "RunReport",
    "SearchIndex",
    "ShardedIndex",
    "Store",
    "SyncSummary",
    "Timeline",
    "TrainingResult",
    "Tuned",
    "build_index",
    "chapters",
    "compare",
    "connect",
    "cut",
    "evaluate",
    "export",
    "find",
    "load_checkpoint",
    "open_index",
    "open_store",
    "preset",
    "pull",
    "push",
    "queries",
    "train",
    "tune",
]

__version__: str
