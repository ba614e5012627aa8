"""The reasons that CDPB's paper gives for its Figures 4 and 5, and its claim on power, judged on the designs alone."""

from typing import Any

from otafl.reproductions.claims import fact
from otafl.reproductions.findings import Grid, Verdict
from otafl.reproductions.pictures import Panel
from otafl.systems.cdpb.claims_map import WITH_NOISE, designs
from otafl.systems.cdpb.reproduce import Found, Settings, analysis_of, curve

SHOWN = {"rho": "ρ", "K_t": "participants", "v": "artificial noise at the receiver", "energy": "transmit energy"}
OWN = ("CDPB-i", "CDPB-n")
ON = "Section V, on Fig. {}"


def _find(settings: Settings) -> Found:
    """Every scheme's rho, participants, noise and energy, for several numbers of rounds."""
    taus = settings["rounds"]
    records = [
        {"tau": tau, "scheme": name, **{key: float(getattr(at, key)) for key in SHOWN}}
        for tau in taus
        for name, at in designs(settings["setting"], tau, settings["q"]).items()
    ]
    told = {key: {(r["scheme"], r["tau"]): r[key] for r in records} for key in SHOWN}
    names = (*WITH_NOISE, "Noise-Free")
    grids = [Grid(title, ("scheme", *(f"τ = {tau}" for tau in taus)),
                  [[name, *(f"{told[key][name, tau]:.3g}" for tau in taus)] for name in names])
             for key, title in SHOWN.items()]  # fmt: skip
    panels = [Panel("", "rounds τ", title, [curve(name, records, "tau", key, scheme=name) for name in names],
                    log="xy" if key == "rho" else "x") for key, title in SHOWN.items()]  # fmt: skip
    return records, grids, design_verdicts(told, taus), panels


def design_verdicts(told: dict[str, dict[tuple[str, int], float]], taus: list[int]) -> list[Verdict]:
    """Each sentence at every tau; Noise-Free, which adds none, is no rival here."""

    def below(key: str, ours: Any, rivals: Any, sign: int = 1) -> tuple[bool, str]:
        """Whether the least of `ours` is less than each of `rivals`; more than each with sign = -1."""
        best = {tau: min(sign * told[key][name, tau] for name in ours) for tau in taus}
        held = all(best[tau] < sign * told[key][name, tau] for tau in taus for name in rivals)
        last = taus[-1]
        against = ", ".join(f"{name} {told[key][name, last]:.3g}" for name in rivals)
        return held, f"at τ = {last}: {sign * best[last]:.3g} against {against}"

    others = [name for name in WITH_NOISE if name != "h_min-based"]
    rivals = [name for name in WITH_NOISE if name not in OWN]
    asked = (
        ("(h_min based) typically requires setting ρ to a lower value", ON.format(4),
         "its ρ is below that of the others with noise", below("rho", ["h_min-based"], others)),
        ("(h_min based) This lower ρ results in more noise being added", ON.format(4),
         "its artificial noise is above that of the others with noise", below("v", ["h_min-based"], others, -1)),
        ("(IS based) fewer clients transmit gradients", ON.format(4),
         "fewer expected participants than with CDPB-i and CDPB-n", below("K_t", ["IS"], OWN)),
        ("CDPB-n introduces more noise than CDPB-i", ON.format(5),
         "more artificial noise at the receiver", below("v", ["CDPB-n"], ["CDPB-i"], -1)),
        ("our methods outperform existing strategies in terms of model accuracy, RDP guarantees, and power efficiency: "
         "power efficiency", "Section I",
         "the better of CDPB-i and CDPB-n needs less energy per client and round than each rival with noise",
         below("energy", OWN, rivals)),
    )  # fmt: skip
    return [fact(text, held, told_so, place, f"at every τ {rule}") for text, place, rule, (held, told_so) in asked]


designs_of_all = analysis_of(_find)
