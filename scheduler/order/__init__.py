"""Order policies: which waiting request goes first, one file each."""
