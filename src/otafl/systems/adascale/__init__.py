"""AdaScale (Moradi Kalarde, Liang, Dong, Ahmed, Cheng): online receive scaling for the least Renyi leakage."""
