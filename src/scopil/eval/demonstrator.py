"""What demonstrations do, by the measures that policies are judged by: a row beside theirs."""

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv
from scopil.eval.episodes import replay
from scopil.eval.measures import Measures, measure_all
from scopil.eval.rules import Rules, own_rules, with_rules
from scopil.eval.starts import can_replay


def demonstrated(demos: Demonstrations, env: BatchEnv | None = None, rules: Rules | None = None) -> list[Episode]:
    """The demonstrated episodes, judged by `rules`, or else by the environment's own: replayed where that is possible,
    and elsewhere as they were recorded. There a rule by a key of `info` that was not recorded is left out."""
    if env is not None and can_replay(demos, env):
        played = replay(env, demos)
        return played if rules is None else with_rules(played, rules, env)
    rules = rules or (None if env is None else own_rules(env))
    known = None if rules is None else rules.known_to(demos.episodes)
    return list(demos.episodes) if known is None else with_rules(demos.episodes, known, env or demos)


def measure_demonstrations(
    demos: Demonstrations, env: BatchEnv | None = None, rules: Rules | None = None
) -> list[Measures]:
    """One row per episode; without reward where some episodes were recorded without."""
    rows = measure_all(demonstrated(demos, env, rules), env if can_replay(demos, env) else None)
    if all("reward" in row for row in rows):
        return rows
    return [{name: value for name, value in row.items() if name != "reward"} for row in rows]
