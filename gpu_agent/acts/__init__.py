"""What the control plane asks to be done on this node, done once each and only if the node allows it."""
