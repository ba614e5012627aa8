"""`otafl advise`: systems design themselves for a site, plans are ranked, and what would help is said.

site             a site as somebody has it
advise           the ranking; designs: schemes without settings, completed; levers: what would help
value            an advice as a value; forms: what its page recomputes
stand_in, trained   an advice as an experiment that trains; its best plans, trained
"""
