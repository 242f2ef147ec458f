"""The measuring itself, in a child process per arm: the only package that imports torch or vLLM."""
