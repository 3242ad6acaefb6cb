"""Memory-bound kernels at three sizes, in float32 and bfloat16, against everything else that could run them.

`cases` lists them; each is a function as a model's author writes it, and `in_jax` has the same for XLA.
"""
