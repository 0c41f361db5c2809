"""The ways in: WebSocket, REST, command line, arq; import them from their modules."""
