"""Data as workers read them: which samples are in a batch, the tensors they come from, data sets by name.

The one thing to know: plain objects; how they reach other processes is not decided here.
"""
