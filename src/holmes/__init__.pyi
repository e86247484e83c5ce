from holmes.api import build_index, evaluate, load_checkpoint, train
from holmes.cluster.index import ShardedIndex, open_index
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig
from holmes.data.store import Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.per_query import QueryTable
from holmes.evaluation.runs.evaluate import queries
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.searcher import Index
from holmes.index.ingest.builder import BuildSummary
from holmes.index.storage.store import IndexDescription
from holmes.moments import Moment
from holmes.results import Epoch, Evaluation, RunReport, TrainingResult
from holmes.serve.client import RemoteIndex, connect
from holmes.training.protocol import Protocol
from holmes.training.run import RunOptions

__all__ = [
    "Answer",
    "BuildSummary",
    "Checkpoint",
    "Epoch",
    "Evaluation",
    "Hit",
    "HolmesConfig",
    "HolmesError",
    "Index",
    "IndexDescription",
    "Moment",
    "Protocol",
    "QueryTable",
    "RemoteIndex",
    "RunOptions",
    "RunReport",
    "ShardedIndex",
    "Store",
    "TrainingResult",
    "build_index",
    "connect",
    "evaluate",
    "load_checkpoint",
    "open_index",
    "open_store",
    "preset",
    "queries",
    "train",
]

__version__: str
open_store = Store.open
