"""Options of `jax.jit(f, compiler_options=…)` for tests that need more than the fast compilation of conftest.py."""

# For long training: faster programs repay the longer compilation.
OPTIMISED = {"xla_backend_optimization_level": 3}
# Bit for bit as compiled for users.
AS_SHIPPED = OPTIMISED | {"xla_cpu_use_fusion_emitters": True}
