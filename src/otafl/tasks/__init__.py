"""What is learned, from whose data: samples, who holds them, models and losses.

sources          what is known about each data set; datasets finds or fetches it (fetch), formats reads it
features         splits, pixel scaling, PCA
partitions       who holds which samples
own_data         arrays of your own as a task: own_arrays, own_files; demand, reading: samples when a round needs them
models           what is trained; own_model: a pytree and a function of your own; losses: and metrics, by name
layers, linear   layers whose per-sample gradients have known norms; windows: the patches of a convolution
ghost            norms and sums of per-sample gradients that are not formed; one_kernel: small networks on a GPU
"""
