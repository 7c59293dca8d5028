"""The processes of a run: workers, which compute gradients, and the coordinator, which leads them."""
