"""The HTTP doors: REST, server-sent events and WebSocket, on one Runner; import them from their modules."""
