"""Train the pocket model: choose among a few candidates on validation data, train the best, test it once.

    python tools/train_pocket.py --data DATA --cache sentences.npz

DATA/joint holds image-text pairs in the space of EfficientNet-Lite2 features (512 principal components):
Flickr8k pictures and MSR-VTT clips, with captions and splits. Validation is Flickr8k's, and long videos
spliced from MSR-VTT training clips that are held out; the final model is trained on those pictures and clips
too. The test is the spliced MSR-VTT test split in DATA/msrvtt and Flickr8k's, beside the untrained route:
ImageNet class names through MiniLM, weighted by what Lite2's own classifier says. Names and definitions of
the classes are read from timm's files. Videos are scored as a search scores them, by their best frame and
their best clip. On 2 cores it takes forty minutes.

Shapes: M members, B items of a batch, N frames and Q sentences of all of them, F frames and C captions of
each, W width of a member, P principal components, S width of sentences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pocket_calibration import calibrate_pocket, search_scores
from pocket_data import Items, Sentences, class_sentences, read_joint, read_spliced_test, splice
from pocket_heads import Classes, Heads, PocketHeads, save
from torch import Tensor

from holmes.base.devices import keep_freed_memory
from holmes.base.files import write_json
from holmes.base.progress import progress_bar
from holmes.errors import HolmesError
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.media.backbones.pocket import CALIBRATION, WEIGHTS, Pocket

HELD_OUT_CLIPS = 300
CAPTIONS, FRAMES = 2, 3  # drawn from each item of a batch; a picture has one frame
CUTOFFS = (1, 5, 10)
SHARPNESS = 20.0  # of the smooth maximum over a clip's frames
Encoder = Callable[[Tensor], Tensor]
Part = tuple[np.ndarray, np.ndarray]  # frames and sentences of an item
WIDTH = 256  # width of the joint space: projecting 640 numbers to it costs nothing on validation data


@dataclass(frozen=True)
class Recipe:
    """How a candidate is built and trained."""

    members: int = 5  # heads trained apart and set side by side
    hidden: int = 768
    width: int = 128  # width of each member
    epochs: int = 80
    batch: int = 512
    clip_share: int = 4  # clips per picture
    classes: int = 128  # ImageNet classes per batch, pictured by the classifier's weights, with descriptions
    noise: float = 0.6  # added to frames, in standard deviations
    twin_weight: float = 0.3  # weight of two captions of one item being neighbours
    dropout: float = 0.5
    text_dropout: float = 0.3
    learning_rate: float = 1e-3
    decay: float = 0.05


PLAIN = Recipe(members=3, hidden=1024, epochs=40, classes=0, noise=0.0, text_dropout=0.5)
CANDIDATES = {
    "one member": replace(PLAIN, members=1),
    "three members": PLAIN,
    "five with classes": Recipe(),
}


def train(
    recipe: Recipe, pictures: Items, clips: Items, described: Items, classes: Classes, seed: int, what: str
) -> PocketHeads:
    """Contrast every caption with every item of the batch, both ways; members apart."""
    torch.manual_seed(seed)
    components, sentence_width = pictures.frames.shape[1], pictures.sentences.shape[1]
    sizes = (recipe.hidden, recipe.width)
    heads = PocketHeads(
        Heads(recipe.members, components, sentence_width, *sizes, recipe.dropout),
        Heads(recipe.members, sentence_width, 0, *sizes, recipe.text_dropout),
        classes,
    )
    optimiser = torch.optim.AdamW(heads.parameters(), recipe.learning_rate, weight_decay=recipe.decay)
    pool = torch.cat(
        [torch.arange(len(pictures)), len(pictures) + torch.arange(len(clips)).repeat(recipe.clip_share)]
    )
    steps = len(pool) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, total_steps=recipe.epochs * steps, pct_start=0.1
    )
    deviation_P = recipe.noise * pictures.frames.std(0)
    with progress_bar(what, recipe.epochs) as advance:
        for _ in range(recipe.epochs):
            for batch in pool[torch.randperm(len(pool))][: steps * recipe.batch].view(steps, recipe.batch):
                batch = batch.unique()
                of_pictures, of_clips = batch[batch < len(pictures)], batch[batch >= len(pictures)]
                of_classes = torch.randperm(len(described))[: recipe.classes]
                drawn = Batch.of(
                    described.draw(of_classes, 1, CAPTIONS),
                    pictures.draw(of_pictures, 1, CAPTIONS),
                    clips.draw(of_clips - len(pictures), FRAMES, CAPTIONS),
                )
                loss = contrast(heads, drawn, deviation_P, recipe.twin_weight)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
            advance(1)
    heads.eval().project([pictures, clips], WIDTH)
    return heads


@dataclass(frozen=True)
class Batch:
    frames_NP: Tensor  # captions of classes, of pictures, of clips
    classes: int  # how many of the frames are classes
    alone: int  # how many of the frames are an item by themselves
    sentences_QS: Tensor  # a caption of every item, then another of every item

    @classmethod
    def of(
        cls, classes: tuple[Tensor, Tensor], pictures: tuple[Tensor, Tensor], clips: tuple[Tensor, Tensor]
    ) -> Batch:
        frames_BFP, sentences_BCS = zip(classes, pictures, clips, strict=True)
        return cls(
            torch.cat([frames.flatten(0, 1) for frames in frames_BFP]),
            len(classes[0]),
            len(classes[0]) + len(pictures[0]),
            torch.cat(sentences_BCS).transpose(0, 1).flatten(0, 1),
        )


def contrast(heads: PocketHeads, batch: Batch, deviation_P: Tensor, twin_weight: float) -> Tensor:
    """The members' losses, summed; noise of this deviation is on the components alone."""
    noisy_NP = batch.frames_NP + deviation_P * torch.randn_like(batch.frames_NP)
    named_NS = heads.named(batch.frames_NP)
    named_NS[: batch.classes] = 0  # the classifier would name its own pictures rightly
    with torch.autocast("cpu", torch.bfloat16):
        seen_MNW, read_MQW = heads.visual(noisy_NP, named_NS), heads.text(batch.sentences_QS)
    count = read_MQW.shape[1] // CAPTIONS
    owner_Q = torch.arange(count).repeat(CAPTIONS)
    scale = heads.log_scale.clamp(max=4.6).exp()
    cosine: Tensor = read_MQW @ seen_MNW.mT
    clip_MQBF = cosine[..., batch.alone :].reshape(*cosine.shape[:2], -1, FRAMES) * SHARPNESS
    clip_MQB = (clip_MQBF.logsumexp(-1) - np.log(FRAMES)) / SHARPNESS
    logits_MQB = torch.cat([cosine[..., : batch.alone], clip_MQB], dim=-1) * scale
    own = (slice(None), torch.arange(len(owner_Q)), owner_Q)
    to_item = -logits_MQB.log_softmax(-1)[own].mean(1)
    to_caption = -logits_MQB.log_softmax(-2)[own].view(-1, CAPTIONS, count).logsumexp(1).mean(1)
    twins_MBB = read_MQW[:, :count] @ read_MQW[:, count : 2 * count].mT * scale
    to_twin = -twins_MBB.log_softmax(-1).diagonal(dim1=1, dim2=2).mean(1)
    loss_M: Tensor = (to_item + to_caption) / 2 + twin_weight * to_twin
    return loss_M.sum()


def recalls(see: Encoder, read: Encoder, items: Items) -> list[float]:
    """R@1, 5, 10 in percent of every sentence over all items, scored as in a search."""
    scores, owner_Q = search_scores(see, read, items)
    score_QV = scores.combined(ZeroShot.frame_weight, ZeroShot.clip_weight)
    found = recall(rank_of_owner(score_QV, owner_Q), CUTOFFS)
    return [round(found[f"R@{cutoff}"], 2) for cutoff in CUTOFFS]


@dataclass(frozen=True)
class Data:
    """All that is learned from, chosen by and tested on."""

    pictures: list[Part]
    more_pictures: list[Part]  # for validation, and for the final model to learn from
    clips: list[Part]
    more_clips: list[Part]  # as `more_pictures`
    test: dict[str, Items]
    classes: Classes
    described: Items  # classes as pictured by the classifier, with names and definitions
    mean: Tensor  # the principal components of Lite2 features
    basis: Tensor

    @property
    def validation(self) -> dict[str, Items]:
        return {"spliced": splice(self.more_clips), "flickr8k": Items.of(self.more_pictures)}


def read_data(folder: Path, sentences: Sentences, seed: int) -> Data:
    joint = folder / "joint"
    if not joint.is_dir():
        raise HolmesError(f"{joint} is not there; give the folder that holds it with --data.")
    of_classes = class_sentences()
    sentences.learn([text for texts in of_classes for text in texts])
    flickr8k = {split: read_joint(joint, "flickr8k", sentences, split) for split in ("train", "val", "test")}
    clips = read_joint(joint, "msrvtt_clips", sentences, "train")
    order = np.random.default_rng(seed).permutation(len(clips))
    more_clips, kept = ([clips[i] for i in part] for part in np.split(order, [HELD_OUT_CLIPS]))
    with np.load(joint / "lite2_pca512.npz", allow_pickle=False) as file:
        mean, basis = torch.from_numpy(file["mean"]), torch.from_numpy(file["basis"])
    classes = Classes(mean, basis, torch.from_numpy(sentences.of([texts[0] for texts in of_classes])))
    length = float(np.mean([np.linalg.norm(frames) for frames, _ in flickr8k["train"]]))
    pictured = classes.pictured(length).numpy()
    return Data(
        pictures=flickr8k["train"],
        more_pictures=flickr8k["val"],
        clips=kept,
        more_clips=more_clips,
        test={
            "spliced msrvtt test": read_spliced_test(folder / "msrvtt", sentences),
            "flickr8k test": Items.of(flickr8k["test"]),
        },
        classes=classes,
        described=Items.of(
            [(row[None], sentences.of(texts)) for row, texts in zip(pictured, of_classes, strict=True)]
        ),
        mean=mean,
        basis=basis,
    )


def choose(data: Data, seed: int) -> tuple[str, PocketHeads]:
    """The candidate that does best on validation data, with heads that did not see these data."""
    validation = data.validation
    untrained = {where: recalls(data.classes.named, as_it_is, items) for where, items in validation.items()}
    print(f"{'untrained':20} {untrained}")
    scores, tried = {}, {}
    for name, recipe in CANDIDATES.items():
        sets = Items.of(data.pictures), Items.of(data.clips), data.described
        heads = tried[name] = train(recipe, *sets, data.classes, seed, name)
        found = {where: recalls(heads.see, heads.read, items) for where, items in validation.items()}
        scores[name] = sum(sum(values) for values in found.values())
        print(f"{name:20} {found}", flush=True)
    best = max(scores, key=lambda name: scores[name])
    print(f"chosen on validation: {best}")
    return best, tried[best]


def test(shipped: Pocket, data: Data) -> None:
    """Test what is kept, run as it will be run, beside the untrained route."""
    for name, items in data.test.items():
        ours = recalls(_on_tensors(shipped.see), _on_tensors(shipped.read), items)
        theirs = recalls(data.classes.named, as_it_is, items)
        times = [round(a / b, 2) for a, b in zip(ours, theirs, strict=True)]
        print(f"{name}, {len(items)} items, {len(items.sentences)} sentences, R@1/5/10: pocket {ours}, "
              f"untrained {theirs}, times {times}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder with joint/ and msrvtt/")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="where the weights go")
    parser.add_argument("--cache", type=Path, help="keep sentence vectors here, for later runs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    keep_freed_memory()

    data = read_data(options.data, Sentences(options.cache), options.seed)
    best, held_out_heads = choose(data, options.seed)
    everything = Items.of(data.pictures + data.more_pictures), Items.of(data.clips + data.more_clips)
    final = train(CANDIDATES[best], *everything, data.described, data.classes, options.seed, "final")
    save(options.out, final, data.classes, data.mean, data.basis)
    shipped = Pocket(path=options.out)
    spliced = data.validation["spliced"]
    calibration = calibrate_pocket(held_out_heads.see, held_out_heads.read, spliced, shipped.digest)
    if calibration is not None:
        write_json(options.out.with_name(CALIBRATION), calibration.to_dict())
    test(shipped, data)
    print(
        f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s in all"
    )


def as_it_is(rows: Tensor) -> Tensor:
    return rows


def _on_tensors(work: Callable[[np.ndarray], np.ndarray]) -> Encoder:
    return lambda rows: torch.from_numpy(work(rows.numpy()))


if __name__ == "__main__":
    try:
        main()
    except HolmesError as error:
        raise SystemExit(f"train_pocket: {error}") from None
