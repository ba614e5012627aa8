"""`otafl advise`: systems design themselves for a site, plans are ranked, and what would help is said."""
