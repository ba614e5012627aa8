"""Schemes planned and charged before anything is trained: what `otafl plan` shows and every run begins with."""
