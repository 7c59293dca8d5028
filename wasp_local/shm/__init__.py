"""Shared memory for all who need it: segments, words, locks and waits. The only place that calls C by hand."""
