"""A small site on which nearly every scheme can be planned and run, and what some need for it besides their names."""

SITE = """
rounds = 6
seeds = 2
channel = "cares"
task = { data = { name = "digits", train_size = 80 }, clients = 4, model = { name = "logistic" } }
radio = { noise_std = 0.05 }
clients = { kind = "gradient", batch = 8 }
privacy = { eps = 60.0 }
engine = { checkpoint_seconds = 0 }
"""
OPTIONS: dict[str, str] = {  # the others run on their defaults
    **{
        f"adascale{name}": "nu = 50.0"
        for name in ("", "-optimal", "-equal", "-estim", "-stat-level", "-stat-water", "-liu-simeone")
    },
    "adascale-constant": "noise = 50.0",
    "bbfl": "interior = [0, 1]",
    "eezofl": 'mode = "digital"\ndp_noise = 3.0\nsmudging_bits = 10\nallow_insecure = true\n'
    'clients = { kind = "zero-order", directions = 4, clip_norm = 2.0 }',
}
UNTUNED = "adascale-lyapunov"  # its tuning finds no weight on this site
