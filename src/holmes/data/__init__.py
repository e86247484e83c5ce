"""From feature folders, or the planted world, to batches on the device."""

from holmes.data.bank import FeatureBank
from holmes.data.loader import BatchLoader
from holmes.data.manifest import StoreInfo
from holmes.data.store import Split, Store

__all__ = ["BatchLoader", "FeatureBank", "Split", "Store", "StoreInfo"]
