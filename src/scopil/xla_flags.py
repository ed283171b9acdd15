"""Options for XLA, as the value of the variable `XLA_FLAGS`. XLA reads it once, when JAX starts."""

# - One thread: the networks are too small to split, and one process per core scales better.
# - Loops with several results: a step of Adam is one loop per array, not three. A gradient step has fewer parts.
# - Vectors of 512 bits, where the processor has them.
XLA_FLAGS = (
    "--xla_cpu_multi_thread_eigen=false "
    "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion "
    "--xla_cpu_prefer_vector_width=512"
)
