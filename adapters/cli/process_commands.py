"""dev, serve, worker, executor, migrate, audit: the commands that are processes of a stack."""

import asyncio
from typing import Annotated

import typer

from threadhold.adapters.cli.background import PORT, Report, chat_with_dev, end_with_parent
from threadhold.adapters.cli.failure import FAILED, OK
from threadhold.adapters.cli.program import program
from threadhold.adapters.cli.terminal import Terminal
from threadhold.adapters.logs import configure_logs
from threadhold.adapters.settings import Settings

Target = Annotated[str, typer.Argument(metavar="TARGET", help="module:app or path/file.py:app")]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Capacity = Annotated[int | None, typer.Option(min=1, max=10_000, help="How many runs at once.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(dev)
    app.command()(serve)
    app.command()(worker)
    app.command()(executor)
    app.command()(migrate)
    app.command()(audit)


def dev(
    target: Target,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default 8000; 0 takes a free one.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Chat here; the log goes to a file.")] = False,
    agent: Annotated[str | None, typer.Option(help="With --chat: which agent.")] = None,
    capacity: Capacity = None,
    as_json: AsJson = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Everything in one command: embedded Postgres and Valkey, the API and a worker."""
    settings = _with_capacity(Settings(), capacity)
    terminal = Terminal(as_json=as_json)
    if chat:
        coroutine = chat_with_dev(target, settings, terminal, host=host, port=port, agent=agent)
        raise typer.Exit(asyncio.run(coroutine))
    chosen = PORT if port is None else port
    if supervised:
        _supervised(target, settings, host=host, port=chosen)
    else:
        from threadhold.adapters import processes

        processes.run(_dev(target, settings, terminal, host=host, port=chosen))


async def _dev(target: str, settings: Settings, terminal: Terminal, *, host: str, port: int) -> None:
    from threadhold.adapters import processes
    from threadhold.adapters.cli.target import load_app

    app = load_app(target)

    async def on_ready(url: str) -> None:
        terminal.record({"ready": {"url": url, "agents": list(app.names)}})
        terminal.line(f"ready: {url}   agents: {', '.join(app.names)}", "bold green")
        at = "" if url == settings.url else f" --url {url}"
        terminal.line(f"next:  {program()} chat {app.names[0]}{at}   (Ctrl-C ends everything)")

    await processes.dev(app, settings, host=host, port=port, on_ready=on_ready)


def _supervised(target: str, settings: Settings, *, host: str, port: int) -> None:
    """Be the servers behind somebody's chat: report on stdout, end when stdin does."""
    report = Report()
    end_with_parent()
    try:
        from threadhold.adapters import processes
        from threadhold.adapters.cli.target import load_app

        app = load_app(target)

        async def on_ready(url: str) -> None:
            report.ready(url, app.names)

        processes.run(processes.dev(app, settings, host=host, port=port, on_ready=on_ready))
    except Exception as error:
        raise typer.Exit(report.failed(error)) from error


def serve(
    target: Target,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = PORT,
) -> None:
    """An API replica, on THREADHOLD_DATABASE_URL and THREADHOLD_REDIS_URL, or on the servers of `dev`."""
    from threadhold.adapters import processes
    from threadhold.adapters.cli.target import load_app

    processes.run(processes.serve(load_app(target), Settings(), host=host, port=port))


def worker(
    target: Target,
    capacity: Capacity = None,
    name: Annotated[str | None, typer.Option(help="Shown to operators; default host and process id.")] = None,
) -> None:
    """A worker, on THREADHOLD_DATABASE_URL and THREADHOLD_REDIS_URL, or on the servers of `dev`."""
    from threadhold.adapters import processes
    from threadhold.adapters.cli.target import load_app

    settings = _with_capacity(Settings(), capacity)
    processes.run(processes.worker(load_app(target), settings, capacity=settings.capacity, name=name))


def executor(
    target: Target,
    queue: Annotated[
        str, typer.Option(help="Whose calls it carries out: the executor that tools are bound to.")
    ],
    capacity: Annotated[int, typer.Option(min=1, max=1_000, help="How many calls at once.")] = 4,
    name: Annotated[str | None, typer.Option(help="Shown to operators; default host and process id.")] = None,
) -> None:
    """Carries out tools that are bound to a queue, each call in a process of its own."""
    from threadhold.adapters import processes
    from threadhold.adapters.cli.target import load_app

    app = load_app(target)
    processes.run(
        processes.executor(app, Settings(), target=target, queue=queue, capacity=capacity, name=name)
    )


def migrate(as_json: AsJson = False) -> None:
    """Bring the database to this version's schema. May be repeated, and by several at once."""
    from threadhold.adapters import processes

    configure_logs()
    applied = processes.run(processes.migrate(Settings()))
    terminal = Terminal(as_json=as_json)
    terminal.record({"applied": applied})
    terminal.line(f"applied: {', '.join(applied)}" if applied else "the database is up to date")
    raise typer.Exit(OK)


def audit(as_json: AsJson = False) -> None:
    """Look for broken invariants in the database. Exits with 1 if there is one."""
    from threadhold.adapters import processes

    configure_logs()
    broken = processes.run(processes.audit(Settings()))
    terminal = Terminal(as_json=as_json)
    for each in broken:
        terminal.record({"broken": each})
        terminal.line(
            f"broken: {each['invariant']} (thread {each['thread_id']}, {each['detail']})", "bold red"
        )
    if not broken:
        terminal.line("no broken invariant")
    raise typer.Exit(FAILED if broken else OK)


def _with_capacity(settings: Settings, capacity: int | None) -> Settings:
    return settings if capacity is None else settings.model_copy(update={"capacity": capacity})
