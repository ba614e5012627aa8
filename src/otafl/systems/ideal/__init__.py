"""References that do not use the radio: FedAvg, and FedAvg with Gaussian noise."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="ideal",
    summary="references that do not use the radio",
    package=__name__,
    schemes={
        "fedavg": Scheme("ideal FedAvg: error-free, noiseless, nobody silent", "fedavg:fedavg", private=False),
        "fedavg-dp": Scheme(
            "FedAvg with Gaussian noise calibrated to the privacy target",
            "fedavg_dp:fedavg_dp",
            settings="settings:settings",
        ),
    },
)
