"""python -m training {corpus,train,export,check,all}: makes the bundled model, step by step or all at once."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

DATA = Path(__file__).parent.parent / "src" / "slotpool" / "data"


# Threads that spin while they wait bring a busy machine to a crawl. Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    args = parse_args()
    verbs = ["corpus", "train", "export", "check"] if args.verb == "all" else [args.verb]
    for verb in verbs:
        VERBS[verb](args)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("verb", choices=["corpus", "train", "export", "check", "all"])
    parser.add_argument("--work", type=Path, default=Path("build/training"), help="folder for corpus, checkpoints and the F32 export")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the package data to write")
    parser.add_argument("--minutes", type=float, default=75.0, help="wall-clock budget of the training")
    parser.add_argument("--threads", type=int, default=2, choices=[1, 2, 4, 8], help="processes of one thread that share a batch")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--steps", type=int, help="number of steps instead of minutes: the same run whatever the machine's speed")
    return parser.parse_args()


def corpus(args: argparse.Namespace) -> None:
    from training import corpus, tokenizer

    documents = corpus.build_corpus(args.work)
    tokenizer.train_tokenizer(documents, args.work / "tokenizer.json")
    args.data.mkdir(parents=True, exist_ok=True)
    corpus.write_samples(documents, args.data)
    corpus.write_licence(args.data)


def train(args: argparse.Namespace) -> None:
    from training.schedule import Schedule
    from training.train import Trainer

    trainer = Trainer(args.work, Schedule(60 * args.minutes, args.steps), args.threads)
    if args.resume:
        trainer.resume()
    trainer.train()


def export(args: argparse.Namespace) -> None:
    from training import export

    export.write_f32(args.work)
    export.write_quantised(args.work, args.data / "demo.gguf")


def check(args: argparse.Namespace) -> None:
    from training import card, check

    figures = check.measure(args.work, args.data)
    card.write_card(figures, args.data / "demo-card.md")


VERBS = {"corpus": corpus, "train": train, "export": export, "check": check}

if __name__ == "__main__":
    main()
