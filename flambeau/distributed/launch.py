"""The older `python -m torch.distributed.launch`: torchrun that also passes --local-rank to the program."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from .elastic.multiprocessing.workers import LOCAL_RANK_MARK
from .run import get_args_parser, run_and_report


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    parser = get_args_parser()
    parser.add_argument(
        "--use-env",
        "--use_env",
        action="store_true",
        default=False,
        help="the program reads LOCAL_RANK from the environment; it gets no --local-rank",
    )
    return parser.parse_args(args)


def launch(args: argparse.Namespace) -> None:
    """Run the workers; each gets `--local-rank`, unless --use-env."""
    if args.no_python and not args.use_env:
        raise ValueError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    if not args.use_env:
        args.training_script_args.insert(0, f"--local-rank={LOCAL_RANK_MARK}")
    run_and_report(args)


def main(args: Sequence[str] | None = None) -> None:
    warnings.warn(
        "The module torch.distributed.launch is deprecated\nand will be removed in future. Use torchrun.\nNote that --use-env is set"
        " by default in torchrun.\nIf your script expects `--local-rank` argument to be set, please\nchange it to read from"
        " `os.environ['LOCAL_RANK']` instead. See \nhttps://pytorch.org/docs/stable/distributed.html#launch-utility for \nfurther"
        " instructions\n",
        FutureWarning,
        stacklevel=2,
    )
    launch(parse_args(args))


if __name__ == "__main__":
    main()
