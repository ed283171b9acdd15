"""The matrix products of one SCOPIL gradient step, and nothing else, in NumPy on one thread of its BLAS.

The update makes eleven forward passes, four of which are differentiated:

| network     | on          | what for                       | forward | backward |
|-------------|-------------|--------------------------------|---------|----------|
| π           | s'          | V(s')                          | 1       |          |
| Q_ψ1, Q_ψ2  | s'          | V(s')                          | 2       |          |
| Q_φ1, Q_φ2  | s           | J_Q                            | 2       | 2        |
| Q_φ1, Q_φ2  | s           | min_x Q after their step       | 2       |          |
| π           | s           | J_π                            | 1       | 1        |
| π           | demos       | G                              | 1       | 1        |
| π           | s           | entropy after its step, for α  | 1       |          |
| π           | demos       | G after its step, for λ        | 1       |          |

A forward pass is x W per layer; a backward pass xᵀ δ per layer and δ Wᵀ for every layer but the first.
"""

import os
from itertools import pairwise

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
from protocol import ACTIONS, BATCH, HIDDEN, OBS, serve

FORWARD, BACKWARD = 11, 4
SIZES = (OBS, *HIDDEN, ACTIONS)
Product = tuple[np.ndarray, np.ndarray, np.ndarray]  # a, b, out of a @ b


def products() -> list[Product]:
    rng = np.random.default_rng(0)
    made: list[Product] = []

    def product(a: np.ndarray, b: np.ndarray) -> None:
        made.append((a, b, np.empty((a.shape[0], b.shape[1]), np.float32)))

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    for each in range(FORWARD):
        xs = [array(BATCH, width) for width in SIZES]
        ws = [array(n, m) for n, m in pairwise(SIZES)]
        for x, w in zip(xs, ws):
            product(x, w)
        if each < BACKWARD:
            for depth in reversed(range(len(ws))):
                delta = array(BATCH, SIZES[depth + 1])
                product(xs[depth].T, delta)
                if depth:
                    product(delta, ws[depth].T)
    return made


def main() -> None:
    work = products()

    def run(updates: int) -> None:
        for _ in range(updates):
            for a, b, out in work:
                np.matmul(a, b, out=out)

    run(10)
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    flop = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in work)
    serve(run, numpy=np.__version__, blas=f"{blas['name']} {blas['version']}", products=len(work), flop=flop)


if __name__ == "__main__":
    main()
