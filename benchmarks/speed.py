"""How fast hf_elmo is, beside AllenNLP and simple_elmo, and how close to the machine's limit: everything in one run.

    python benchmarks/speed.py --allennlp-python PATH --simple-elmo-python PATH

PATH is the Python of an environment with that implementation; `peers/README.md` of the shared folder says how to make
one. A peer without PATH is left out. Needs `pip install "hf-elmo[convert,train,plot,onnx]" onnxruntime`. Writes, after
every section, `results.json` and plots to `--out`, and `README.md` beside that folder. `--only` measures some sections
and keeps what the results file has of the others; `--only none` writes the page again. `--quick` is a trial of
everything on very little text and one thread.
"""

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from tqdm import tqdm

from measure import embedding, encoders, finetuning, heads, latency, memory, onnx, pretraining, scaling, startup
from measure.bench import FULL, QUICK, Bench, Settings
from measure.plots import draw_plots
from measure.report import write_readme
from measure.results import Results, Section, describe_machine
from measure.rows import Row
from measure.text import ROOT, WIKITEXT, shared_folder

SECTIONS: dict[str, ModuleType] = {
    "embedding": embedding,
    "encoders": encoders,
    "latency": latency,
    "onnx": onnx,
    "finetuning": finetuning,
    "heads": heads,
    "pretraining": pretraining,
    "scaling": scaling,
    "memory": memory,
    "startup": startup,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allennlp-python", help="Python of an environment with AllenNLP and its models 2.10.1")
    parser.add_argument("--simple-elmo-python", help="Python of an environment with simple_elmo 0.9.2")
    parser.add_argument("--shared", type=Path, default=shared_folder(), help="folder with peers/ and data/")
    parser.add_argument("--text", type=Path, help="tokenized paragraphs, one a line [WikiText-2's test part]")
    parser.add_argument("--large-text", type=Path, help="folder of .txt files for large corpora [public-domain books]")
    parser.add_argument("--out", type=Path, help="folder of results and plots [benchmarks/results; a trial's: outputs]")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "outputs" / "benchmarks", help="folder where models are made and kept"
    )
    parser.add_argument("--only", type=_sections, default=list(SECTIONS), help=f"some of {','.join(SECTIONS)}, or none")
    parser.add_argument(
        "--before", type=Path, help="another checkout of hf_elmo with an environment .venv, measured beside this one"
    )
    parser.add_argument("--quick", action="store_true", help="a trial run on very little")
    arguments = parser.parse_args()
    arguments.text = arguments.text or arguments.shared / WIKITEXT
    arguments.large_text = arguments.large_text or arguments.shared / "data" / "lm" / "public_domain"
    trial = arguments.work / "trial" / "results"
    arguments.out = arguments.out or (trial if arguments.quick else ROOT / "benchmarks" / "results")
    return arguments


def _sections(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; take some of {','.join(SECTIONS)}, or none")
    return names


def run_section(measure: Callable[[Bench], Iterator[Row]], bench: Bench, quick: bool) -> Section:
    """The rows of a section, and the error that ended it early."""
    started = time.perf_counter()
    section = Section(machine=describe_machine(), date=datetime.now(UTC).strftime("%Y-%m-%d"), quick=quick)
    try:
        section.rows.extend(measure(bench))
    except Exception as error:  # the other sections go on
        tqdm.write(traceback.format_exc())
        section.failure = f"{type(error).__name__}: {error}"
    section.seconds = time.perf_counter() - started
    return section


def main() -> None:
    arguments = parse_arguments()
    settings = Settings(
        arguments.allennlp_python,
        arguments.simple_elmo_python,
        arguments.shared,
        arguments.text,
        arguments.large_text,
        arguments.work,
        arguments.before,
    )
    bench = Bench(settings, QUICK if arguments.quick else FULL)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file, page = arguments.out / "results.json", arguments.out.parent / "README.md"
    results = Results.load(file)
    minutes = {name: SECTIONS[name].MINUTES for name in arguments.only}
    with tqdm(total=sum(minutes.values()), unit=" expected minutes", disable=arguments.quick) as bar:
        for name in arguments.only:
            tqdm.write(f"{name}: {'a trial' if arguments.quick else f'about {minutes[name]} min'}")
            section = run_section(SECTIONS[name].measure, bench, arguments.quick)
            results.merge(name, section, SECTIONS)
            results.save(file)
            write_readme(results, draw_plots(results, arguments.out), page)
            tqdm.write(f"{name}: took {section.seconds / 60:.1f} min")
            bar.update(minutes[name])
    write_readme(results, draw_plots(results, arguments.out), page)
    print(f"wrote {file} and {page}")


if __name__ == "__main__":
    main()
