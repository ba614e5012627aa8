"""otafl: over-the-air federated learning with privacy: plan, run, account, certify and encrypt."""

__version__ = "0.1.0"
