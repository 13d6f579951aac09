"""What a GPU has several of, read through nvidia-ml-py: one file a kind. Parts are named as in fields.PARTS."""
