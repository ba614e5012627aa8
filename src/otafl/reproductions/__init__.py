"""Analyses behind the presets: each turns runs and designs into a published figure or table, and a verdict.

verb             `otafl.reproduce`; preset_run: one preset; all_presets: all of them
reproduction     what an analysis is told, and what it leaves
claims, findings   how claims are judged, and how what was found is written
curves, beside, pictures   final values and curves, ours beside the paper's: in words, tables, panels
our_own          analyses of presets of no single paper
verdicts, pages  all reproductions in one table; the results pages
"""
