"""Postgres: the schema, the migrations and one store per noun; import the stores from their modules."""
