"""The tables of docs/uncertainty.md, averaged over the seeds, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from holmes.evaluation.confidence.tables import FIGURES, NAMES, interval, short
from holmes.evaluation.runs.confidence import mean, mean_figures
from holmes.evidence.kinds import AnswerKind
from holmes.report.figures.confidence import draw_confidence
from holmes.report.figures.style import LIGHT, WIDTH, Theme, svg


def tables(found: list[dict[str, Any]]) -> dict[str, str]:
    """Each table in Markdown. What needs known answers or large galleries is of the planted world alone."""
    planted = [of_one for of_one in found if of_one["world"] == "planted"] or found
    return {
        "confidence": joined(found, confidence_table),
        "hard": joined(planted, hard_table),
        "kinds": joined(planted, kinds_table),
        "galleries": joined(planted, galleries_table),
        "abstention": abstention_table(found),
    }


def joined(found: list[dict[str, Any]], part: Callable[[dict[str, Any]], str]) -> str:
    made = [(of_one["world"], part(of_one)) for of_one in found]
    return "\n\n".join(f"*{world}*\n\n{text}" for world, text in made if text)


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def details(found: dict[str, Any], *path: str) -> list[Any]:
    """One entry of every seed's details."""
    values = []
    for report in found["reports"]:
        value = report["uncertainty_details"]
        for key in path:
            value = None if value is None else value.get(key)
        values.append(value)
    return values


def mean_interval(values: list[dict[str, float | None] | None]) -> str:
    known = [value for value in values if value is not None]
    return (
        interval({part: mean(v[part] for v in known) for part in ("value", "low", "high")}) if known else "–"
    )


def confidence_table(found: dict[str, Any]) -> str:
    figures = mean_figures([report["uncertainty"] for report in found["reports"]])
    recall = f"R@1 {100 * fmean(details(found, 'top1')):.1f}, R@10 {100 * fmean(details(found, 'top10')):.1f}"
    rows = [[NAMES[name], *(interval(of_one.get(f)) for f in FIGURES)] for name, of_one in figures.items()]
    return f"{recall}\n\n" + markdown(["", *FIGURES.values()], rows)


def hard_table(found: dict[str, Any]) -> str:
    tasks = [hard["auroc"] for hard in details(found, "hard_queries")]
    rows = [
        [NAMES[name], *(mean_interval([of_seed[task][name] for of_seed in tasks]) for task in tasks[0])]
        for name in next(iter(tasks[0].values()))
        if name != "vacuity"  # orders queries as P(none) does
    ]
    level = details(found, "hard_queries")[0]["corrupted"]
    return f"corrupted: {level}\n\n" + markdown(["", *(task.replace("_", " ") for task in tasks[0])], rows)


def kinds_table(found: dict[str, Any]) -> str:
    """Share and accuracy of each kind of answer, and a confusion table if the planted kinds are known."""
    kinds = details(found, "kinds")
    rows = []
    for name in kinds[0]["shares"]:
        right = mean(k["right"].get(name) for k in kinds)
        of_kind = "–" if right is None else f"{100 * right:.1f}%"
        share = 100 * fmean(k["shares"][name] for k in kinds)
        rows.append([AnswerKind[name.upper()].words, f"{share:.1f}%", of_kind])
    said = markdown(["answer", "share", "first hit right"], rows)
    known = [k["agreement"] for k in kinds if k["agreement"] is not None]
    if not known:
        return said
    score = ", ".join(short(k["macro_F1"]) for k in known)
    chance = short(fmean(k["chance_macro_F1"] for k in known))
    names = known[0]["kinds"]
    confusion = np.sum([k["confusion"] for k in known], axis=0)
    counts = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, confusion, strict=True)]
    beside = markdown(["planted", *(f"judged {name}" for name in names)], counts)
    return f"macro-F1 {score} (one per seed), by chance {chance}\n\n{said}\n\nAll seeds together:\n\n{beside}"


def gallery_rows(found: dict[str, Any]) -> list[dict[str, float]]:
    """Sizes of galleries, averaged over the seeds."""
    runs = found["galleries"] or details(found, "gallery_sizes")
    keys = runs[0][0].keys()
    return [{key: mean(row[key] for row in same) or 0.0 for key in keys} for same in zip(*runs, strict=True)]


def galleries_table(found: dict[str, Any]) -> str:
    rows = gallery_rows(found)
    names = {"said": "predicted", "right": "observed", "ece": "ECE", "auroc_top1": "AUROC top 1"}
    names |= {"uncorrected": "predicted by a curve through the score"} if "uncorrected" in rows[0] else {}
    body = [[f"{row['videos']:,.0f}", *(short(row[key]) for key in names)] for row in rows]
    return markdown(["videos", *names.values()], body)


def abstention_table(found: list[dict[str, Any]]) -> str:
    rows = []
    for of_one in found:
        left = details(of_one, "abstention")
        parts = [
            mean(row[name] for row in left) for name in ("answered", "right_of_answered", "right_of_all")
        ]
        rows.append([of_one["world"], *("–" if part is None else f"{100 * part:.1f}%" for part in parts)])
    return markdown(["", "answered", "right, of those answered", "right, of all"], rows)


def write_docs(page: Path, made: dict[str, str], found: list[dict[str, Any]], title: str) -> None:
    """Replace the marked blocks of the page, and draw its figures beside it."""
    text = page.read_text()
    for name, table in {**made, "title": title}.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end {name} -->")
        if start and end:
            text = f"{before}{start}{table}\n{end}{after}"
    page.write_text(text)
    figures = page.parent / "figures"
    figures.mkdir(exist_ok=True)
    for of_one in found:
        first = of_one["reports"][0]["uncertainty_details"]
        (figures / f"confidence-{of_one['world']}.svg").write_bytes(svg(draw_confidence(first, LIGHT)))
    sizes = {of_one["world"]: gallery_rows(of_one) for of_one in found if of_one["galleries"]}
    if sizes:
        (figures / "gallery-sizes.svg").write_bytes(svg(draw_gallery_sizes(sizes, LIGHT)))
    print(f"{page} and its figures are up to date")


def draw_gallery_sizes(worlds: Mapping[str, Sequence[Mapping[str, float]]], theme: Theme = LIGHT) -> Figure:
    """Predicted and observed probability of the first hit, by gallery size: a panel for each world."""
    with theme.applied():
        figure = Figure((WIDTH, 2.4), layout="constrained")
        for axes, (name, rows) in zip(
            figure.subplots(1, len(worlds), squeeze=False)[0], worlds.items(), strict=True
        ):
            videos = [row["videos"] for row in rows]
            axes.set_title(name)
            for key, label, colour, style in (
                ("right", "observed", theme.ink, "-"),
                ("said", "predicted", theme.series[0], "o"),
                ("uncorrected", "predicted, gallery size ignored", theme.series[1], "x"),
            ):
                values = [row[key] for row in rows if key in row]
                if values:
                    axes.plot(videos, values, style, color=colour, markersize=4, label=label)
            axes.set(xscale="log", xlabel="videos in the gallery", ylim=(0, None))
            axes.set_xticks(videos, [f"{count:,.0f}" for count in videos])
            axes.minorticks_off()
        figure.axes[0].set_ylabel("the first hit is right")
        figure.axes[0].legend(frameon=False, fontsize=7.5)
    return figure
