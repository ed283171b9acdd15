"""The user's code that a run names: its copy in the run folder, and whether it may run.

A new run copies the files of its environment, rules and own features, with the modules beside them that they import,
to `code/env`, `code/rules` and `code/features`. run.json holds their digests, signed by this user's key. A reader runs
the copies if they are signed and unchanged. Other code runs only if the caller trusts the folder.
"""

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scopil.config import code_in
from scopil.envs.naming import OWN_CODE, names_code, split_options, with_options
from scopil.errors import CheckpointError, ConfigError, EnvError, ScopilError
from scopil.files import is_line, write_atomically
from scopil.signing import is_signed, sign
from scopil.user_code import adopt, is_file_name, local_files, split_name

FOLDER = "code"
Files = dict[str, dict[str, str]]  # env, rules or features → path of a file → SHA-256


class Code(NamedTuple):
    """The code of a run folder."""

    folder: Path
    env: str
    rules: str | None
    features: str | None  # the function in the setting `features`
    files: Files
    signature: str | None

    @classmethod
    def copy(cls, folder: Path, env: str, rules: str | None, features: str | None) -> "Code":
        """Copy the code that the caller names to a run folder, and sign it."""
        texts = {role: _read(name) for role, name in _named(env, rules, features).items()}
        for role, each in texts.items():
            for name, text in each.items():
                write_atomically(folder / FOLDER / role / name, text)
        code = cls(folder, env, rules, features, {role: _digests(each) for role, each in texts.items()}, None)
        return code._replace(signature=sign(code._signed()) if code.names_code else None)

    @classmethod
    def read(cls, folder: Path, note: dict[str, Any]) -> "Code":
        """The code of an existing run folder. Removes its entries from `note`, the content of run.json."""
        files, signature = note.pop(FOLDER, {}), note.pop("signature", None)
        each = files.values() if isinstance(files, dict) else [None]
        lines = [line for some in each if isinstance(some, dict) for pair in some.items() for line in pair]
        if not all(isinstance(some, dict) for some in each) or not all(map(_is_inside, [*files, *lines])):
            raise CheckpointError(f"{folder}/run.json is damaged: {FOLDER} does not hold digests by file.")
        named = note["env"], note.get("rules"), code_in(note["config"])
        return cls(folder, *named, files, signature if is_line(signature) else None)

    @property
    def names_code(self) -> bool:
        """Whether opening the environment, the rules or the features runs code of a user."""
        return names_code(self.env) or self.rules not in (None, *OWN_CODE) or self.features is not None

    @property
    def own(self) -> bool:
        """Whether the folder may be read without trust: it names no code, or this user's key signed the digests."""
        return not self.names_code or is_signed(self._signed(), self.signature)

    def note(self) -> dict[str, Any]:
        """The entries of run.json."""
        return {FOLDER: self.files, "signature": self.signature} if self.names_code else {}

    def is_copy_of(self, env: str, rules: str | None, features: str | None) -> bool:
        """Whether the code is intact and equal to the code that the caller names now."""
        same = (env, rules, features) == (self.env, self.rules, self.features)
        return same and all(self.is_unchanged(role) for role in ("env", "rules", "features"))

    def is_unchanged(self, role: str) -> bool:
        """Whether a copy is intact and equal to its original."""
        name = _named(self.env, self.rules, self.features).get(role)
        now = {} if name is None else _read(name)
        return _digests(now) == self.files.get(role, {}) and all(self._text(role, key) == now[key] for key in now)

    def env_name(self, trusted: bool) -> str:
        """The name that opens the environment in this process. Raises EnvError if its code may not run."""
        if not names_code(self.env):
            return self.env
        base, options = split_options(self.env)
        return with_options(self._opened("env", base, trusted, EnvError), options)

    def rules_name(self, trusted: bool) -> str | None:
        """The name that loads the rules in this process. Raises ConfigError if their code may not run."""
        if self.rules is None or self.rules in OWN_CODE:
            return self.rules
        return self._opened("rules", self.rules, trusted, ConfigError)

    def features_name(self, trusted: bool) -> str | None:
        """The name that loads the own features in this process. Raises ConfigError if their code may not run."""
        return None if self.features is None else self._opened("features", self.features, trusted, ConfigError)

    def _opened(self, role: str, name: str, trusted: bool, error: type[ScopilError]) -> str:
        texts = self.texts(role, name, trusted, error)
        return adopt(name, texts, self._place(role, name, texts)) if texts else name

    def texts(self, role: str, name: str, trusted: bool, error: type[ScopilError] = ConfigError) -> dict[str, bytes]:
        """The copied files of some code. Raises if it may not run."""
        accept = "add --trust-env (trust_env=True)"
        yours = ", or give yours: scopil.load(run, features=…)" if role == "features" else f", or name yours (--{role})"
        if not trusted and not self.own:
            raise error(
                f"{self.folder} names the code {name!r} as its {role}, and your key did not sign it: the run was made "
                f"elsewhere, or its run.json was changed. If you trust that code, {accept}{yours}."
            )
        mine = self.files.get(role, {})
        texts = {file: self._text(role, file) for file in mine}
        for file, text in texts.items():
            if text is None or (not trusted and hashlib.sha256(text).hexdigest() != mine[file]):
                how = "is missing" if text is None else "has changed"
                wanted = "restore it" if text is None else f"restore it, or, to run it as it is, {accept}"
                raise error(f"{self.folder / FOLDER / role / file} {how} since the run was created; {wanted}.")
        return {file: text for file, text in texts.items() if text is not None}

    def _place(self, role: str, name: str, texts: Mapping[str, bytes]) -> Path:
        """The folder of the code: the original one if its files are equal, because they may read data beside them."""
        main = Path(split_name(name)[0])
        if is_file_name(name) and main.is_file():
            place = main.absolute().parent
            odd = [file for file, text in texts.items() if _text(place / file) != text]
            if not odd:
                return place
            warnings.warn(f"{place / odd[0]} differs from the copy in {self.folder}, which is used.", stacklevel=4)
        return self.folder / FOLDER / role

    def _text(self, role: str, name: str) -> bytes | None:
        return _text(self.folder / FOLDER / role / name)

    def _signed(self) -> dict[str, Any]:
        more = {} if self.features is None else {"features": self.features}
        return {"env": self.env, "rules": self.rules, FOLDER: self.files} | more


def _named(env: str, rules: str | None, features: str | None) -> dict[str, str]:
    """The names of users' code: of the environment, without its options, of the rules and of the features."""
    base = split_options(env)[0]
    named = {"env": base} if ":" in base and base not in OWN_CODE else {}
    named |= {} if rules is None or rules in OWN_CODE else {"rules": rules}
    return named if features is None else named | {"features": features}


def _read(name: str) -> dict[str, bytes]:
    return {key: file.read_bytes() for key, file in local_files(name).items()}


def _text(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _digests(texts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(text).hexdigest() for name, text in sorted(texts.items())}


def _is_inside(name: Any) -> bool:
    """Whether a path from a file is printable and stays in its folder."""
    return is_line(name) and not Path(name).is_absolute() and not {"..", ""} & {*name.replace("\\", "/").split("/")}
