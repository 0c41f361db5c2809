"""A conversation in the terminal: what is typed goes out at once, what is said comes in as it is said."""

import asyncio
import signal
from contextlib import aclosing, suppress
from typing import Any, Final

from threadhold.adapters.cli.deciding import VERBS, first_for, how_to_type, typed
from threadhold.adapters.cli.failure import FAILED, INTERRUPTED, OK, CliError
from threadhold.adapters.cli.lines import TERMINAL_BYTES_MAX, Lines
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.cli.view import ChatView
from threadhold.adapters.client import Client, ClientError, Watched
from threadhold.runner.errors import InvalidInput

HELP: Final = (
    "Type a message; while the agent answers, it is told at its next step. "
    "When it asks you something, what you type is the answer; /approve, /edit JSON and /reject [REASON] decide on what "
    "it wants to do. /stop stops the run, /new starts another thread, /quit leaves, Ctrl-C stops a run or leaves."
)
PROMPT: Final = "> "
NOTHING_RUNS: Final = "(nothing runs)"


async def agent_or_only(client: Client, agent: str | None) -> str:
    """Return the agent that was asked for, or the only one there is.

    Raises:
        CliError: nobody said which of several.
    """
    if agent is not None:
        return agent
    names = await client.agents()
    if len(names) != 1:
        raise CliError("usage", f"which agent? this app has: {', '.join(names) or 'none'}")
    return names[0]


class Chat:
    """One conversation, over one or more threads.

    Args:
        client: the API.
        terminal: where the text goes.
        lines: what is typed.
        agent: whom new threads are with.
        thread: an existing thread to go on with, or None for a new one.
    """

    def __init__(
        self,
        client: Client,
        terminal: Terminal,
        lines: Lines,
        *,
        agent: str | None,
        thread: str | None = None,
    ) -> None:
        self._client = client
        self._terminal = terminal
        self._lines = lines
        self._agent = agent
        self._thread = thread
        self._cursor: str | None = None
        self._view = ChatView()
        self._watching: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._sending = asyncio.Lock()
        self._interrupted = False
        self._prompted = False

    @property
    def thread(self) -> str | None:
        """The present thread."""
        return self._thread

    async def run(self, *, interactive: bool) -> int:
        """Talk until the input ends or the person leaves, and return the exit code.

        Args:
            interactive: a person may type any time; otherwise each line waits for the answer to the last one.

        Raises:
            ClientError: the server refused or went away.
        """
        if self._thread is not None:
            await self._client.thread(self._thread)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        talking = asyncio.ensure_future(self._converse() if interactive else self._feed())
        leaving = asyncio.ensure_future(self._leave.wait())
        try:
            await asyncio.wait({talking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                return talking.result()
            return INTERRUPTED if self._interrupted and not interactive else OK
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await _ended(talking, leaving, self._watching, self._stopping)
            for piece in self._view.close():
                self._terminal.piece(piece)
            if self._prompted:
                self._terminal.end_prompt()

    def _on_interrupt(self) -> None:
        """Stop what runs; leave if nothing does, or if it is said twice."""
        again, self._interrupted = self._interrupted and self._stopping is not None, True
        if self._view.busy and not again:
            self._stopping = asyncio.ensure_future(self._stop())
        else:
            self._leave.set()

    async def _stop(self) -> None:
        # A first message that is still on its way makes the thread whose run is to be stopped.
        async with self._sending:
            thread = self._thread
        if thread is None:
            self._note(NOTHING_RUNS)
            return
        try:
            receipt = await self._client.stop(thread=thread)
        except ClientError as error:
            self._note(f"not stopped: {error.message}")
            return
        if receipt.run is None:
            self._note(NOTHING_RUNS)
        elif not receipt.settled:
            self._note("(the stop is recorded; the run has not ended yet)")

    async def _feed(self) -> int:
        """Send each line of a pipe or file, and print the answer before the next."""
        code = OK
        while (line := await self._lines.next()) is not None:
            text = await self._message_of(line)
            if self._leave.is_set():
                break
            if text is not None:
                self._terminal.line(f"{PROMPT}{text}", "bold")
                await self._send(text)
            if self._view.busy:
                await self._follow(until_idle=True)
            if self._view.failed:
                code = FAILED
            if self._interrupted:
                return INTERRUPTED
        return code

    async def _converse(self) -> int:
        """Read and watch at the same time."""
        self._terminal.line(HELP, "dim")
        self._watch()
        self._prompt()
        while (line := await self._line_or_end()) is not None:
            self._prompted, self._interrupted = False, False
            text = await self._message_of(line)
            if text is not None:
                await self._sent(text)
            if self._leave.is_set():
                return OK
            self._prompt()
        return OK

    async def _line_or_end(self) -> str | None:
        """Return the next line; a watch that fails meanwhile ends the conversation with its error."""
        typed = asyncio.ensure_future(self._lines.next())
        try:
            while not typed.done():
                watching = self._watching
                await asyncio.wait(
                    {typed, *([watching] if watching else [])}, return_when=asyncio.FIRST_COMPLETED
                )
                if watching is not None and watching.done() and not watching.cancelled():
                    watching.result()
            return typed.result()
        finally:
            await _ended(typed)

    async def _message_of(self, line: str) -> str | None:
        """Return the message that a line is, or None after obeying a command or refusing the line."""
        if self._lines.cut:
            way = " ".join([program(), "send", *([self._thread] if self._thread else []), "- < file"])
            self._note(f"not sent: a terminal line holds {TERMINAL_BYTES_MAX} bytes; use `{way}`")
            return None
        word = line.strip()
        if word.startswith("//"):
            return line.replace("//", "/", 1)
        if not word.startswith("/"):
            return line if word else None
        await self._obey(word)
        return None

    async def _obey(self, command: str) -> None:
        verb, _, rest = command.partition(" ")
        if verb in VERBS:
            await self._answer(verb, rest.strip())
            return
        match command:
            case "/stop":
                await self._stop()
            case "/new":
                await _ended(self._watching)
                self._thread, self._cursor, self._watching = None, None, None
                self._view = ChatView()
                self._terminal.line("(a new thread begins with your next message)", "dim")
            case "/quit" | "/exit":
                self._leave.set()
            case "/help":
                self._terminal.line(HELP, "dim")
            case _:
                known = "/stop, /approve, /edit, /reject, /new, /quit, /help"
                self._note(
                    f"not sent: {command.split()[0]} is no command ({known}); "
                    "begin with // to send a text that begins with /"
                )

    async def _answer(self, verb: str, rest: str) -> None:
        """Decide on the oldest request that the command can be meant for."""
        asked = first_for(verb, self._view.open.values())
        if asked is None:
            self._note("(nothing waits for that)")
            return
        try:
            outcome = await self._client.answer(asked.id, typed(verb, rest), args_hash=asked.args_hash)
        except (CliError, ClientError, InvalidInput) as error:
            self._note(f"not answered: {error.message}")
        else:
            self._view.open.pop(asked.id, None)
            # A watch that runs beside tells what follows; otherwise it is to be followed from here.
            if self._watching is None:
                self._view.busy = not outcome.open

    async def _sent(self, line: str) -> None:
        """Send, and show a refusal; the conversation goes on after one."""
        try:
            await self._send(line)
        except ClientError as error:
            if error.code == "unreachable":
                raise
            self._note(f"not sent: {error.message}")
        else:
            self._watch()

    async def _send(self, line: str) -> None:
        agent = None if self._thread is not None else await agent_or_only(self._client, self._agent)
        # Before the call: the watch may show the run's end before the receipt is back.
        self._view.expect(line)
        try:
            async with self._sending:
                receipt = await self._client.send(self._thread, line, agent=agent)
                self._thread = receipt.thread
        except ClientError:
            self._view.forget(line)
            raise
        if receipt.no_worker:
            self._note("(accepted; no worker has this agent now, it is answered when one comes)")
        elif receipt.disposition == "queued":
            self._note("(accepted; it is answered after the present run)")

    def _note(self, text: str) -> None:
        """Print a note; a prompt that was shown meanwhile is shown after it again."""
        prompted, self._prompted = self._prompted, False
        if prompted:
            self._terminal.erase_line()
        self._terminal.note(text)
        if prompted:
            self._prompt()

    def _watch(self) -> None:
        """Begin to watch the thread, once there is one."""
        if self._thread is not None and self._watching is None:
            self._watching = asyncio.ensure_future(self._follow(until_idle=False))

    async def _follow(self, *, until_idle: bool) -> None:
        """Print the thread's frames from where the last look ended."""
        assert self._thread is not None
        frames = self._client.watch(self._thread, after=self._cursor, until="idle" if until_idle else None)
        async with aclosing(frames):
            async for watched in frames:
                self._cursor = watched.cursor
                self._show(watched)

    def _show(self, watched: Watched) -> None:
        pieces = self._view.feed(watched.frame)
        if pieces and self._prompted:
            self._terminal.erase_line()
            self._prompted = False
        for piece in pieces:
            self._terminal.piece(piece)
        if watched.frame.data.get("fact") == "paused" and self._view.open:
            self._terminal.line(how_to_type(self._view.open.values()), "dim")
        if watched.frame.kind in ("fact", "head"):
            self._prompt()

    def _prompt(self) -> None:
        """Ask for the next message, if nothing runs and nobody has been asked."""
        if self._watching is None and self._thread is not None:
            return
        if not self._view.busy and not self._prompted:
            self._terminal.prompt(PROMPT)
            self._prompted = True


async def _ended(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
