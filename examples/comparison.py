"""What the comparisons share: options, training, a table over seeds, gains with their intervals, a bar chart."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from matplotlib.figure import Figure
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score
from torch.utils.data import Sampler
from transformers import DataCollatorWithPadding, EarlyStoppingCallback, EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.utils import logging

import hf_elmo
from hf_elmo.modeling_tasks_elmo import ElmoTaskModel
from hf_elmo.shipped import NAME, located


@dataclass(frozen=True)
class Run:
    """One training: `metrics` on the test part (fractions), seconds of training, the number of trained parameters."""

    metrics: dict[str, float]
    seconds: float
    parameters: int


Results = dict[str, list[Run]]  # the runs of each row, one a seed


def options(description: str, out: str) -> argparse.ArgumentParser:
    """The options of all comparisons."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", default=Path("../shared/data"), help="folder [../shared/data]")
    parser.add_argument("--model", type=located, default=NAME, help=f"folder or name of an ELMo [{NAME}]")
    parser.add_argument("--out", type=Path, default=Path(out), help=f"checkpoint and figure go there [{out}]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row [5]")
    parser.add_argument("--quick", action="store_true", help="two seeds and little data, to see that it runs")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line, with two seeds where it is quick. From here on the libraries say errors only."""
    args = parser.parse_args(arguments)
    if args.quick:
        args.seeds = 2
    disable_progress_bars()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return args


def classification_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy and macro F1 of `[texts, classes]` logits, or of the logits `[texts, 1]` of a sigmoid."""
    logits, labels = prediction.predictions, prediction.label_ids
    found = logits.argmax(1) if logits.shape[1] > 1 else logits[:, 0] > 0
    return {"accuracy": accuracy_score(labels, found), "macro_f1": f1_score(labels, found, average="macro")}


class TrainerByLength(Trainer):
    """`Trainer`, whose samplers by length read the lengths of all rows at once. Its own ask the data set for each of
    them by itself, in every epoch: a fifth of a tagger's time."""

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        return self._with_list(super()._get_train_sampler(train_dataset))

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        return self._with_list(super()._get_eval_sampler(eval_dataset))

    def _with_list(self, sampler: Sampler | None) -> Sampler | None:
        if isinstance(sampler, LengthGroupedSampler):
            sampler.lengths = list(sampler.lengths[:])
        return sampler


def fine_tune(
    model: ElmoTaskModel,
    parts: Mapping[str, Any],
    tokenizer: hf_elmo.ElmoTokenizer,
    seed: int,
    *,
    metrics: Callable[[EvalPrediction], dict[str, float]] = classification_metrics,
    best: str = "accuracy",
    collator: type = DataCollatorWithPadding,
    rates: Mapping[str, float] | None = None,
    patience: int = 3,
    also: Callable[[ElmoTaskModel], Mapping[str, float]] | None = None,
    **settings: Any,
) -> Run:
    """
    Train `model` on `parts["train"]`, keep the epoch that is best on `parts["dev"]` (the last one where there is no
    such part), and test once on `parts["test"]`.

    Args:
        best: the metric of `metrics` by which the epoch is chosen.
        rates: learning rates of their own, as [`hf_elmo.learning_rates`] takes them.
        patience: stop after so many epochs that are not better.
        also: further figures of the trained model, beside those of `parts["test"]`.
        settings: of `TrainingArguments`.
    """
    with TemporaryDirectory() as folder:
        choice = {"eval_strategy": "epoch", "save_strategy": "best", "load_best_model_at_end": True}
        arguments = TrainingArguments(
            folder,
            seed=seed,
            metric_for_best_model=best,
            save_only_model=True,
            save_total_limit=1,
            per_device_eval_batch_size=64,
            dataloader_pin_memory=False,  # there may be no accelerator
            report_to=[],
            disable_tqdm=True,
            **(choice if "dev" in parts else {"save_strategy": "no"}),
            **{"train_sampling_strategy": "group_by_length", **settings},
        )
        trainer = TrainerByLength(
            model,
            arguments,
            collator(tokenizer),
            parts["train"],
            parts.get("dev"),
            compute_metrics=metrics,
            callbacks=[EarlyStoppingCallback(patience)] if "dev" in parts else None,
            optimizer_cls_and_kwargs=hf_elmo.learning_rates(model, arguments, **(rates or {})),
        )
        trainer.remove_callback(PrinterCallback)
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    tested = trainer.predict(parts["test"]).metrics
    others = ("loss", "time", "per_second")  # what Trainer measures besides
    scores = {key.removeprefix("test_"): value for key, value in tested.items() if not key.endswith(others)}
    scores |= also(model) if also is not None else {}
    return Run(scores, seconds, sum(p.numel() for p in model.parameters() if p.requires_grad))


def compare(rows: Mapping[str, Callable[[int], Run]], seeds: int) -> Results:
    """Run all rows with each of the seeds 1 to `seeds`; says on standard error how far it is."""
    results: Results = {name: [] for name in rows}
    for seed in range(1, seeds + 1):
        for name, run in rows.items():
            results[name].append(run(seed))
            scores = "  ".join(f"{key} {value:.4f}" for key, value in results[name][-1].metrics.items())
            print(f"seed {seed}  {name}  {scores}", file=sys.stderr, flush=True)
    return results


def _percent(runs: Sequence[Run], metric: str) -> np.ndarray:
    return 100 * np.array([run.metrics[metric] for run in runs])


def table(results: Results, metrics: Mapping[str, str]) -> str:
    """Markdown: for each row the mean and standard deviation over its seeds, in percent, of the metrics (by their
    headings); the seconds of a training; the parameters it trained."""
    lines = [
        "| | " + " | ".join(metrics.values()) + " | seconds a run | trained parameters |",
        "|---|" + "---|" * (len(metrics) + 2),
    ]
    for name, runs in results.items():
        scores = [f"{x.mean():.2f} ± {x.std(ddof=1):.2f}" for x in (_percent(runs, metric) for metric in metrics)]
        seconds = np.mean([run.seconds for run in runs])
        lines.append(f"| {name} | {' | '.join(scores)} | {seconds:.1f} | {runs[0].parameters:,} |")
    return "\n".join(lines)


def gain(results: Results, without: str, with_: str, metric: str = "accuracy") -> str:
    """What one row has over another in percentage points, with the 95 % interval of the mean difference over seeds
    (paired t): outside the noise of the seeds where it does not hold 0."""
    difference = _percent(results[with_], metric) - _percent(results[without], metric)
    low, high = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    return f"{with_} over {without}: {difference.mean():+.2f} points ({low:+.2f} to {high:+.2f})"


def bar_chart(results: Results, metric: str, label: str, path: Path, start: float = 0.0) -> None:
    """A bar for each row with its standard deviation over seeds; `start`: where the axis begins, in percent."""
    figure = Figure(figsize=(7, 0.45 * len(results) + 1), layout="constrained")
    axes = figure.subplots()
    scores = [_percent(runs, metric) for runs in results.values()]
    colors = ["tab:blue" if "ELMo" in name else "tab:gray" for name in results]
    spread = [score.std(ddof=1) for score in scores]
    bars = axes.barh(list(results), [score.mean() - start for score in scores], left=start, xerr=spread, color=colors)
    axes.bar_label(bars, [f"{score.mean():.1f}" for score in scores], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def clock() -> tuple[float, float]:
    """The seconds now, and those that the process has computed, which other work on the machine does not prolong."""
    return time.perf_counter(), time.process_time()


def took(start: tuple[float, float]) -> str:
    """The time since `start`, what [`clock`] said then."""
    passed, computed = (
        f"{x // 60:.0f} min {x % 60:.0f} s" for x in (now - then for now, then in zip(clock(), start, strict=True))
    )
    return f"{passed} on {torch.get_num_threads()} threads, {computed} of CPU time"
