def write_report(runs, out_file=None):
    return []
