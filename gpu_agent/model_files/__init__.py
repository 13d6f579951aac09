"""Files of models on this node's disks, beside the manifests that say what they should be."""
