"""The paper's tables as printed."""

# Mean ± deviation over ten seeds, as printed. Two errors of the paper are kept: the deviation of SCOPIL's H on Simple
# (0.95, although that of H+C is 0.126), and the deviations of Two-modes' length and steps, which are over episodes, not
# seeds. The paper prints SAC's H+C as "1.99±0,19".
_SIMPLE = """
measure                scopil       icrl          sac           s-dgd         s-eic        s-dgd-eic    ppo-dgd
reward                 -13.46±0.29  -11.88±0.10   -11.31±0.28   -13.22±0.19   -13.76±0.21  -13.41±0.36  -10.94±0.11
violations/horizontal  0.045±0.95   0.52±0.60     1.11±0.20     0.12±0.16     0.005±0.016  0.10±0.18    0.08±0.07
frequency/horizontal   0.002±0.005  0.024±0.026   0.05±0.01     0.006±0.008   0.000±0.001  0.004±0.006  0.005±0.006
violations/circle      0.042±0.04   1.02±0.23     0.87±0.15     0.02±0.00     0.03±0.01    0.025±0.000  0.64±0.17
frequency/circle       0.004±0.001  0.08±0.016    0.08±0.01     0.003±0.000   0.004±0.001  0.003±0.000  0.05±0.01
violations             0.087±0.126  1.54±0.53     1.99±0.19     0.1475±0.163  0.035±0.021  0.125±0.184  0.72±0.138
frequency              0.006±0.006  0.10±0.027    0.13±0.139    0.01±0.008    0.004±0.001  0.007±0.006  0.05±0.01
length                 255.32±1.57  244.47±12.73  260.05±4.99   256.58±3.09   255.50±2.42  256.13±3.01  245.06±2.13
steps                  19.83±0.41   17.53±1.38    16.79±0.40    19.48±0.27    20.26±0.31   19.76±0.52   16.25±0.16
"""
_MULTIPLE = """
measure                scopil
reward                 -21.84±2.76
violations/horizontal  0.81±1.26
frequency/horizontal   0.01±0.01
violations/vertical    0.55±1.37
frequency/vertical     0.005±0.009
violations/circle      0.35±0.12
frequency/circle       0.011±0.003
violations             1.71±2.60
frequency              0.028±0.018
length                 266.65±13.54
steps                  31.41±3.66
"""
_TWO_MODES = """
measure                scopil
reward                 -16.16±0.25
violations/horizontal  0.0±0.0
frequency/horizontal   0.0±0.0
violations/circle      0.02±0.0
frequency/circle       0.003±0.00
violations             0.025±0.0
frequency              0.0035±0.0
length                 264.43±131.22
steps                  24.95±11.94
"""


def _parse(table: str) -> dict[str, dict[str, str]]:
    head, *lines = (line.split() for line in table.strip().splitlines())
    return {name: {line[0]: line[i] for line in lines} for i, name in enumerate(head) if i}


PRINTED: dict[str, dict[str, dict[str, str]]] = {  # setting → method → measure → printed text
    "simple": _parse(_SIMPLE),
    "multiple": _parse(_MULTIPLE),
    "two-modes": _parse(_TWO_MODES),
}
