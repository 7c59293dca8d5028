"""What people look at: the progress line, the metrics file, the run's folder, the summary at the end.

The one thing to know: all of it is made from the plain types of `wasp_local.events`; nothing here knows how a
run is carried out, and nothing here imports torch.
"""
