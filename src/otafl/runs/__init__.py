"""What people start: experiments into folders, and loops of their own over the air.

schema           what a file may say; described: the same from keywords; schemes, own_scheme: schemes as values
build            an experiment as arrays and functions; sites, server, evaluation and feedback are parts of it
beside           what an experiment names beside its file, by hash: other files, code that is not otafl's
planning         every scheme planned and charged before a gradient
runner           all schemes of an experiment into one folder; lanes: side by side; workbench: what they share
execution        one scheme, chunk by chunk; streamed: where its rounds are too many to keep
finish           what is written after the last round, into the folder: kept, certificates, traffic
sweep, remote    many experiments, here or elsewhere: executors, workers; board, progress: what is said meanwhile
advice           which scheme for a site; comparing: which of them is better; audit: what a charge is worth
air              `otafl.Air`: the same rounds with messages brought by somebody else
limits           of the machine at hand; device_mapping, compilation and interrupts know it too, doctor tells of it
frames           results as people read them
presets          experiments of no single system
"""
