"""How programs are compiled whose tests need more than conftest.py's quickest way: `jax.jit(f, compiler_options=…)`."""

# Learning to the end: what compiling costs more, running gains many times over.
OPTIMISED = {"xla_backend_optimization_level": 3}
# As users' programs are, to the last bit.
AS_SHIPPED = OPTIMISED | {"xla_cpu_use_fusion_emitters": True}
