FROM python:3.13-slim

# The provider packages for the agents in examples/, by the names of pydantic-ai's extras.
ARG PROVIDERS=openai

RUN useradd --create-home --uid 10001 threadhold
WORKDIR /app

COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY adapters adapters
COPY claims claims
COPY fanout fanout
COPY runner runner
COPY storage storage
RUN pip install --no-cache-dir --root-user-action=ignore . "pydantic-ai-slim[${PROVIDERS}]" \
    && rm -rf build src adapters claims fanout runner storage

COPY examples examples

USER threadhold
ENV PYTHONUNBUFFERED=1
EXPOSE 8000
ENTRYPOINT ["threadhold"]
CMD ["serve", "examples/support.py:app", "--host", "0.0.0.0", "--port", "8000"]
