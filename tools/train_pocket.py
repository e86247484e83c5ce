"""Train the pocket model: choose among a few candidates on validation data, train the best, test it once.

    python tools/train_pocket.py --data ../shared/data --cache sentences.npz

DATA/joint holds image-text pairs in the space of EfficientNet-Lite2 features (512 principal components):
Flickr8k pictures and MSR-VTT clips, with captions and splits. Validation is Flickr8k's, and long videos
spliced from MSR-VTT training clips that are held out; the final model is trained on those clips too. The test
is the spliced MSR-VTT test split in DATA/msrvtt, beside the untrained route: ImageNet class names through
MiniLM, weighted by what Lite2's own classifier says. The class names are read from timm's files. Videos are
scored as a search scores them, by their best frame and their best clip.

Shapes: B items of a batch, C captions of each, F frames, N = B·C sentences, D width of the joint space.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pocket_calibration import calibrate_pocket, search_scores
from pocket_data import Items, Sentences, class_names, read_joint, read_spliced_test, splice
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from holmes.files import atomic_file, write_json
from holmes.index.embedders import ZeroShot
from holmes.media.backbones.lite2 import weights_path
from holmes.media.backbones.pocket import CALIBRATION, NAME_SCALE, SCALE, WEIGHTS, Pocket
from holmes.memory import keep_freed_memory
from holmes.progress import progress_bar

HELD_OUT_CLIPS = 300
CAPTIONS, FRAMES = 2, 3  # drawn of each item in a batch; a picture has one frame
SHARPNESS = 20.0  # of the smooth maximum over a clip's frames


@dataclass(frozen=True)
class Recipe:
    """How a candidate is built and trained."""

    members: int = 1  # heads trained apart and set side by side
    hidden: int = 1024
    width: int = 128  # of each member
    names: bool = True  # whether frames also come as class names
    epochs: int = 40
    batch: int = 512
    clip_share: int = 4  # how often a clip comes for each time a picture does
    twin_weight: float = 0.3  # two captions of one item should be neighbours too
    dropout: float = 0.5
    rate: float = 1e-3
    decay: float = 0.05


CANDIDATES = {
    "components only": Recipe(names=False),
    "with class names": Recipe(),
    "three small members": Recipe(members=3, hidden=512, epochs=20, dropout=0.3),
    "three members": Recipe(members=3),
}


class Head(nn.Module):
    """LayerNorm, a hidden layer, and a straight way past it."""

    def __init__(self, inputs: int, extra: int, recipe: Recipe) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.hidden = nn.Linear(inputs + extra, recipe.hidden)
        self.out = nn.Linear(recipe.hidden, recipe.width)
        self.skip = nn.Linear(inputs + extra, recipe.width, bias=False)
        self.dropout = nn.Dropout(recipe.dropout)

    def forward(self, rows: Tensor, extra: Tensor | None = None) -> Tensor:
        inputs = self.norm(rows)
        inputs = self.dropout(inputs if extra is None else torch.cat([inputs, extra], dim=-1))
        output = self.out(self.dropout(self.hidden(inputs).relu())) + self.skip(inputs)
        return F.normalize(output, dim=-1)


class Classes:
    """Lite2's classifier on principal components, and the sentences of its classes' names."""

    def __init__(self, mean: Tensor, basis: Tensor, names: Tensor) -> None:
        state = torch.load(weights_path(), map_location="cpu", weights_only=True)
        self.weight = (state["_fc.weight"] @ basis).T.contiguous()
        self.bias = state["_fc.bias"] + state["_fc.weight"] @ mean
        self.names = names

    def named(self, components: Tensor) -> Tensor:
        odds: Tensor = (components @ self.weight + self.bias).softmax(-1)
        return odds @ self.names


class PocketHeads(nn.Module):
    def __init__(self, recipe: Recipe, classes: Classes, components: int, sentence_width: int) -> None:
        super().__init__()
        self.classes = classes if recipe.names else None
        extra = sentence_width if recipe.names else 0
        self.visual = nn.ModuleList(Head(components, extra, recipe) for _ in range(recipe.members))
        self.text = nn.ModuleList(Head(sentence_width, 0, recipe) for _ in range(recipe.members))
        self.log_scale = nn.Parameter(torch.full((recipe.members,), 3.0))

    def named(self, components: Tensor) -> Tensor | None:
        return None if self.classes is None else self.classes.named(components) * NAME_SCALE

    def see(self, components: Tensor) -> Tensor:
        return torch.cat([head(components, self.named(components)) for head in self.visual], dim=-1)

    def read(self, sentences: Tensor) -> Tensor:
        return torch.cat([head(sentences) for head in self.text], dim=-1)


def train(recipe: Recipe, sets: list[Items], classes: Classes, seed: int, what: str) -> PocketHeads:
    """Contrast every caption with every item of the batch, both ways; members apart."""
    torch.manual_seed(seed)
    pictures, clips = sets
    heads = PocketHeads(recipe, classes, pictures.frames.shape[1], pictures.sentences.shape[1])
    optimiser = torch.optim.AdamW(heads.parameters(), recipe.rate, weight_decay=recipe.decay)
    pool = torch.cat(
        [torch.arange(len(pictures)), len(pictures) + torch.arange(len(clips)).repeat(recipe.clip_share)]
    )
    steps = len(pool) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.rate, total_steps=recipe.epochs * steps, pct_start=0.1
    )
    with progress_bar(what, recipe.epochs) as advance:
        for _ in range(recipe.epochs):
            for batch in pool[torch.randperm(len(pool))][: steps * recipe.batch].view(steps, recipe.batch):
                batch = batch.unique()
                of_pictures, of_clips = batch[batch < len(pictures)], batch[batch >= len(pictures)]
                drawn = (
                    pictures.draw(of_pictures, 1, CAPTIONS),
                    clips.draw(of_clips - len(pictures), FRAMES, CAPTIONS),
                )
                loss = contrast(heads, *drawn, recipe)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
            advance(1)
    return heads.eval()


def contrast(
    heads: PocketHeads, pictures: tuple[Tensor, Tensor], clips: tuple[Tensor, Tensor], recipe: Recipe
) -> Tensor:
    frames = torch.cat([pictures[0].flatten(0, 1), clips[0].flatten(0, 1)])
    named = heads.named(frames)
    sentences_NS = torch.cat([pictures[1], clips[1]]).transpose(0, 1).flatten(0, 1)  # captions outermost
    count = len(sentences_NS) // CAPTIONS
    owner_N = torch.arange(count).repeat(CAPTIONS)
    alone = len(pictures[0])
    total = frames.new_zeros(())
    for visual, text, log_scale in zip(heads.visual, heads.text, heads.log_scale, strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            seen, read_ND = visual(frames, named), text(sentences_NS)
        seen, read_ND = seen.float(), read_ND.float()
        scale = log_scale.clamp(max=4.6).exp()
        cosine = read_ND @ seen.T
        clip_NBF = cosine[:, alone:].unflatten(1, (-1, FRAMES)) * SHARPNESS
        clip_NB = (clip_NBF.logsumexp(-1) - np.log(FRAMES)) / SHARPNESS
        logits_NB = torch.cat([cosine[:, :alone], clip_NB], dim=1) * scale
        to_item = F.cross_entropy(logits_NB, owner_N)
        own_CB = logits_NB.log_softmax(0)[torch.arange(len(owner_N)), owner_N].view(CAPTIONS, count)
        twins = read_ND[:count] @ read_ND[count : 2 * count].T * scale
        to_twin = F.cross_entropy(twins, torch.arange(count))
        total = total + (to_item - own_CB.logsumexp(0).mean()) / 2 + recipe.twin_weight * to_twin
    return total


def recall(see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items) -> list[float]:
    """R@1, 5, 10 in percent of every sentence over all items, scored as in a search."""
    scores, owner_Q = search_scores(see, read, items)
    score_QV = ZeroShot.frame_weight * scores.frame_QV + ZeroShot.clip_weight * scores.clip_QV
    rank_Q = (score_QV >= score_QV.gather(1, owner_Q[:, None])).sum(1)
    return [round(100 * (rank_Q <= k).float().mean().item(), 2) for k in (1, 5, 10)]


def _tensors(work: Callable[[np.ndarray], np.ndarray]) -> Callable[[Tensor], Tensor]:
    return lambda rows: torch.from_numpy(work(rows.numpy()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="the folder with joint/ and msrvtt/"
    )
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="where the weights go")
    parser.add_argument("--cache", type=Path, help="keep sentence vectors here, for later runs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.data / "joint").is_dir():
        raise SystemExit(
            f"train_pocket: {options.data}/joint is not there; give the data's folder with --data."
        )
    began = time.monotonic()
    keep_freed_memory()

    sentences = Sentences(options.cache)
    names = class_names()
    sentences.learn(names)
    joint = options.data / "joint"
    pictures = read_joint(joint, "flickr8k", sentences, "train")
    clips = read_joint(joint, "msrvtt_clips", sentences, "train")
    order = np.random.default_rng(options.seed).permutation(len(clips))
    held_out, kept = ([clips[i] for i in part] for part in np.split(order, [HELD_OUT_CLIPS]))
    validation = {
        "spliced": splice(held_out),
        "flickr": Items.of(read_joint(joint, "flickr8k", sentences, "val")),
    }
    with np.load(joint / "lite2_pca512.npz", allow_pickle=False) as file:
        mean, basis = torch.from_numpy(file["mean"]), torch.from_numpy(file["basis"])
    classes = Classes(mean, basis, torch.from_numpy(sentences.of(names)))

    untrained = {
        name: recall(classes.named, lambda vectors: vectors, items) for name, items in validation.items()
    }
    print(f"{'untrained':20} {untrained}")
    scores, tried = {}, {}
    for name, recipe in CANDIDATES.items():
        heads = tried[name] = train(recipe, [Items.of(pictures), Items.of(kept)], classes, options.seed, name)
        found = {where: recall(heads.see, heads.read, items) for where, items in validation.items()}
        scores[name] = sum(sum(recalls) for recalls in found.values())
        print(f"{name:20} {found}", flush=True)
    best = max(scores, key=lambda name: scores[name])
    print(f"chosen on validation: {best}")

    final = train(CANDIDATES[best], [Items.of(pictures), Items.of(clips)], classes, options.seed, "final")
    save(options.out, final, classes, mean, basis)
    shipped = Pocket(path=options.out)  # what is tested is what is kept, run as it will be run
    calibration = calibrate_pocket(tried[best].see, tried[best].read, validation["spliced"], shipped.digest)
    if calibration is not None:
        write_json(options.out.with_name(CALIBRATION), calibration.to_dict())
    test = {
        "spliced msrvtt test": read_spliced_test(options.data / "msrvtt", sentences),
        "flickr8k test": Items.of(read_joint(joint, "flickr8k", sentences, "test")),
    }
    for name, items in test.items():
        ours = recall(_tensors(shipped.see), _tensors(shipped.read), items)
        theirs = recall(classes.named, lambda vectors: vectors, items)
        times = [round(a / b, 2) for a, b in zip(ours, theirs, strict=True)]
        print(f"{name}, {len(items)} items, {len(items.sentences)} sentences, R@1/5/10: pocket {ours}, "
              f"untrained {theirs}, times {times}")  # fmt: skip
    print(
        f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s in all"
    )


def save(path: Path, heads: PocketHeads, classes: Classes, mean: Tensor, basis: Tensor) -> None:
    """float16, and a byte a weight with a scale a row where most of the weights are."""
    tensors = {
        "pca.mean": mean,
        "pca.basis": basis,
        "classes.weight": classes.weight,
        "classes.bias": classes.bias,
        "classes.names": classes.names,
        **{name: tensor for name, tensor in heads.state_dict().items() if name != "log_scale"},
    }
    kept = {}
    for name, tensor in tensors.items():
        if name.startswith(("visual.", "text.")) and tensor.dim() == 2:
            scale = tensor.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
            kept[name] = (tensor / scale).round().to(torch.int8)
            kept[name + SCALE] = scale
        else:
            kept[name] = tensor.half().contiguous()
    with atomic_file(path) as file:
        file.write(save_tensors(kept))


if __name__ == "__main__":
    main()
