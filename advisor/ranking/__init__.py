"""Rankings: which node type suits an application, from microbenchmarks (Corredor, 2011)."""
