"""Options for XLA, as the value of the variable `XLA_FLAGS`. XLA reads it once, when JAX starts.

XLA's fusion of loops with several results (`xla_cpu_use_multi_output_fusion`) makes a step an eighth faster, but the
XLA of jax 0.10.2 aborts the process when it compiles some programs with it.
"""

# One thread: the networks are too small to split, and one process per core scales better. Vectors of 512 bits, where
# the processor has them.
XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_prefer_vector_width=512"
