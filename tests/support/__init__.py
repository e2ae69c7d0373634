"""What several tests share: independent models, weak hashes, access to conf and to real traces."""
