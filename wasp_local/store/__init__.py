"""The parameters in shared memory: pulled, pushed and stepped. Knows nothing of protocols or workers."""
