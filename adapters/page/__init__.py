"""A plain chat page: static files that speak to the WebSocket and REST doors like any other client."""
