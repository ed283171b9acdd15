"""The lists of keyword arguments for type checkers are those of the configs."""

import subprocess
import sys
import typing

import pytest

from scopil import agent_settings
from scopil.algos import bc, icrl, ppo, ppo_dgd, ppo_lagrangian, sac, sac_lagrangian, scopil, scopil_rho
from scopil.config import settings

PAIRS = {
    "SacSettings": sac.Config,
    "SharedSettings": scopil.Shared,
    "ScopilSettings": scopil.Config,
    "ScopilRhoSettings": scopil_rho.Config,
    "SacLagrangianSettings": sac_lagrangian.Config,
    "BcSettings": bc.Config,
    "PpoSettings": ppo.Config,
    "PpoDgdSettings": ppo_dgd.Config,
    "PpoLagrangianSettings": ppo_lagrangian.Config,
    "IcrlSettings": icrl.Config,
}


@pytest.mark.parametrize("name", PAIRS)
def test_names_and_types_are_the_configs(name):
    listed = getattr(agent_settings, name)
    hints = typing.get_type_hints(listed)
    known = {s.name: s.type for s in settings(PAIRS[name])}
    widths = {k: agent_settings.Widths if v == tuple[int, ...] else v for k, v in known.items()}
    widths |= {k: agent_settings.Widths | None for k, v in known.items() if v == tuple[int, ...] | None}
    assert hints == widths
    assert listed.__total__ is False
    assert not listed.__required_keys__  # every one may be left out


def test_no_list_is_without_a_config():
    found = {n for n, v in vars(agent_settings).items() if isinstance(v, type) and n.endswith("Settings")}
    assert found == set(PAIRS)


def test_the_lists_import_nothing_heavy():
    code = f"import runpy, sys; runpy.run_path({agent_settings.__file__!r}); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"jax", "numpy", "scopil"}.isdisjoint(out.split())
