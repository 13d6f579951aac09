"""The node agent: reports a node's GPUs and engines, and follows the node's configuration. No Django."""
