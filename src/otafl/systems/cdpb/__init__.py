"""CDPB (Kim, Seo, Choi): every client balances data and noise by its own channel."""
