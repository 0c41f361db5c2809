"""Nothing of a secret is in traces, ours or those of pydantic-ai's own instrumentation with all contents on."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, InstrumentationSettings

from tests.runner.conftest import ME, Bench
from tests.support.servers import Stack
from tests.system.secrets_app import HUSH, KEY, app
from threadhold import open_runner
from threadhold.runner import spans
from threadhold.runner.machine import RunStatus
from threadhold.runner.scrubbing import MARKER
from threadhold.storage.pool import Database


@pytest.mark.parametrize("how", ["return", "retry", "raise"])
async def test_no_trace_tells_a_secret(
    stack: Stack, database: Database, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "tracer", provider.get_tracer("threadhold"))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, include_content=True))
    try:
        async with open_runner(app, stack.settings(), capacity=2) as runner:
            bench = Bench(runner, database)
            run = await bench.run(await bench.send(f'call gossip {{"how": "{how}"}} ;; say done'))
            assert run.status is (RunStatus.FAILED if how == "raise" else RunStatus.COMPLETED)
            assert (await runner.why(run.id, by=ME)).run.id == run.id
    finally:
        Agent.instrument_all(False)
    told = "".join(span.to_json() for span in exporter.get_finished_spans())
    named = {span.name for span in exporter.get_finished_spans()}
    # Both kinds of spans are there, with what the tool has told in them.
    assert "threadhold.attempt" in named
    assert any("gossip" in name for name in named)
    assert MARKER in told
    assert HUSH not in told
    assert KEY not in told
