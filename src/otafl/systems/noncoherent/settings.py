"""What the non-coherent rivals choose for a site and a privacy target: how much of their energy they may spend."""

from otafl.systems.simulated import Bench, Options, Refusal, affordable_share, on_bench


@on_bench
def fsk_mv(at: Bench) -> Options | Refusal:
    """Costs grow in proportion to energy: one division on simulated channels."""
    return {"share": affordable_share("fsk-mv", "share", at)}


@on_bench
def energy_difference(at: Bench) -> Options | Refusal:
    """The same."""
    return {"share": affordable_share("energy-difference", "share", at)}
