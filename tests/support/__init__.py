"""Real servers, processes that tests start and kill, and ways to wait for facts."""
