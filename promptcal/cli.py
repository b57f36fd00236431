"""The command line: ``promptcal COMMAND …``; one module of ``promptcal.commands`` is one command.

Errors that a person can mend are one sentence on standard error and exit code 2; an interruption is exit code 130.
"""

import argparse
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

import promptcal
from promptcal import commands
from promptcal.console import complain
from promptcal.errors import PromptcalError, unknown

DESCRIPTION = "Make vision-language models say how sure they really are: train prompts, calibrate, measure, report."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    modules = _modules()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in modules:
        complain(f"promptcal: {unknown('command', arguments[0], modules)}")
        return 2
    parser = _parser(modules)
    parsed, late = parser.parse_known_args(arguments)
    if late and not (hasattr(parsed, "overrides") and all("=" in word and word[0] != "-" for word in late)):
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    if late:  # argparse takes no more words after an option, a person may write them there
        parsed.overrides += late
    if parsed.command is None:
        parser.print_help()
        return 0
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        return int(modules[parsed.command].run(parsed))
    except PromptcalError as error:
        complain(f"promptcal {parsed.command}: {error}")
        return 2
    except BrokenPipeError:  # the reader of the output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        complain(f"promptcal {parsed.command}: interrupted; what was finished is kept, the same command goes on.")
        return 130


def _modules() -> dict[str, ModuleType]:
    """The command modules by name (``import_`` is ``import``); they import nothing heavy until they run."""
    found = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    return {name.removesuffix("_"): importlib.import_module(f"promptcal.commands.{name}") for name in found}


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="promptcal", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"promptcal {promptcal.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in modules.items():
        command = subparsers.add_parser(
            name, help=module.HELP, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
