"""The door for MCP hosts: tools and resources over Streamable HTTP at `/mcp`, and over stdio."""
