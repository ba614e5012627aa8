"""The round and what its parts share: plan, messages, uplink, engine; errors, checks, files. Knows no scheme."""
