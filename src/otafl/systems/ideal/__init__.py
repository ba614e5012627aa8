"""References that do not use the radio: FedAvg, and FedAvg with Gaussian noise."""
