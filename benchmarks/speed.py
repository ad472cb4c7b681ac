"""How fast hf_elmo is, beside AllenNLP and simple_elmo, and how close to the machine's limit: everything in one run.

    python benchmarks/speed.py --allennlp-python PATH --simple-elmo-python PATH

PATH is the Python of an environment with that implementation; `peers/README.md` of the shared folder says how to make
one. A peer without PATH is left out. Needs `pip install -e ".[convert,train,plot,onnx]" onnxruntime`. Writes, after
every section, `results.json` and plots to `benchmarks/results`, and `machines.md` and the table of `targets.md` to
`docs/performance`; with `--out` all to that folder. `--only` measures some sections and keeps what the results file has
of the others; `--only` without names writes the pages again. Warns of sections that were measured before the kernels or
the modeling file changed. `--quick` is a trial of everything on very little text and one thread.
"""

import argparse
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from measure import embedding, encoders, latency, scaling, startup, training
from measure.bench import FULL, QUICK, Bench
from measure.plots import draw_plots
from measure.processes import Row
from measure.report import write_pages
from measure.results import current_commit, describe_changes, describe_machine, load_results, save_results
from measure.text import ROOT, WIKITEXT, shared_folder

RESULTS = ROOT / "benchmarks" / "results"
SECTIONS: dict[str, tuple[Callable[[Bench], Iterator[Row]], int]] = {  # and the minutes that each is expected to take
    "embedding": (embedding.measure, 16),
    "encoders": (encoders.measure, 10),
    "latency": (latency.measure, 4),
    "onnx": (latency.measure_onnx, 2),
    "finetuning": (training.measure_finetuning, 2),
    "heads": (training.measure_heads, 8),
    "pretraining": (training.measure_pretraining, 2),
    "scaling": (scaling.measure, 3),
    "memory": (scaling.measure_memory, 6),
    "startup": (startup.measure, 3),
}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allennlp-python", help="Python of an environment with AllenNLP and its models 2.10.1")
    parser.add_argument("--simple-elmo-python", help="Python of an environment with simple_elmo 0.9.2")
    parser.add_argument("--shared", type=Path, default=shared_folder(), help="folder with peers/ and data/")
    parser.add_argument("--text", type=Path, help="tokenized paragraphs, one a line [WikiText-2's test part]")
    parser.add_argument("--large-text", type=Path, help="folder of .txt files for large corpora [public-domain books]")
    parser.add_argument("--out", type=Path, help="folder of what it writes [as above; a trial's: outputs]")
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "benchmarks", help="folder of the models")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS), help="sections [all]")
    parser.add_argument("--shapes", help="some of compact,small,medium,original [small,original; a trial's: small]")
    parser.add_argument(
        "--before", type=Path, help="another checkout of hf_elmo with an environment .venv, measured beside this one"
    )
    parser.add_argument("--quick", action="store_true", help="a trial run on very little text")
    options = parser.parse_args(arguments)
    options.text = options.text or options.shared / WIKITEXT
    options.large_text = options.large_text or options.shared / "data" / "lm" / "public_domain"
    options.out = options.out or (options.work / "trial" if options.quick else RESULTS)
    return options


def run_section(measure: Callable[[Bench], Iterator[Row]], bench: Bench, quick: bool) -> dict[str, Any]:
    """The rows of a section, and the error that ended it early."""
    started, rows, failure = time.perf_counter(), [], None
    try:
        rows.extend(measure(bench))
    except Exception as error:  # the other sections go on
        tqdm.write(traceback.format_exc())
        failure = f"{type(error).__name__}: {error}"
    return {
        "machine": describe_machine(),
        "commit": current_commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": time.perf_counter() - started,
        "quick": quick,
        "failure": failure,
        "rows": rows,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    plan = QUICK if options.quick else FULL
    bench = Bench(options, replace(plan, shapes=tuple(options.shapes.split(","))) if options.shapes else plan)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.json"
    pages = ROOT / "docs" / "performance" if options.out == RESULTS else options.out
    results = load_results(file)
    for name in options.only:
        measure, minutes = SECTIONS[name]
        tqdm.write(f"{name}: {'a trial' if options.quick else f'about {minutes} min'}")
        results[name] = run_section(measure, bench, options.quick)
        results = {known: results[known] for known in SECTIONS if known in results}
        save_results(results, file)
        write_pages(results, draw_plots(results, options.out), pages)
        tqdm.write(f"{name}: took {results[name]['seconds'] / 60:.1f} min")
    write_pages(results, draw_plots(results, options.out), pages)
    for line in describe_changes(results):
        tqdm.write(f"warning: {line}")
    print(f"wrote {file} and the pages of {pages}")


if __name__ == "__main__":
    main()
