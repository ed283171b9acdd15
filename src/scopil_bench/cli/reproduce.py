"""`scopil reproduce`: the same as `scopil study paper`."""

from scopil.cli.options import call
from scopil_bench.cli.study import study


def main(argv: list[str]) -> int:
    return call(study, "scopil reproduce", [*_taken(argv, "--study", "paper")])


def _taken(argv: list[str], flag: str, default: str) -> list[str]:
    """The arguments with the value of an option, or its default, in front."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith(f"{flag}=") else [word])]
    if flag not in words[:-1]:
        return [default, *words]
    at = words.index(flag)
    return [words[at + 1], *words[:at], *words[at + 2 :]]
