"""The node around its GPUs: which processes are an engine's, its sockets, files, memory and disks. From /proc."""
