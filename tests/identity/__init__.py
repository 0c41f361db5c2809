"""Who asks: tokens, signatures, keys and files."""
