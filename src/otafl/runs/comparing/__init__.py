"""`otafl compare`: equal settings, equal trials, and what may be said about the differences.

compare          all schemes at every target, and their ranking; statistics: what few seeds allow to say
from_plans       settings without data; run_energy: under a budget of energy
trials, tune     settings on samples kept out: all of them, or the step alone
"""
