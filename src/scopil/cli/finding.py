"""One thing that a check has found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    what: str
    said: str
    good: bool = True
    doubt: bool = False  # worth a look; no reason to refuse

    @property
    def mark(self) -> str:
        return "BAD" if not self.good else "?" if self.doubt else "ok"
