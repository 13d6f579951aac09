"""The twenty bottlenecks of serving language models, each a class in a module of its own."""
