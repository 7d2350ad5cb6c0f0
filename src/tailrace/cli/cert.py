"""`tailrace cert`: certificates for a broker and its clients, from a CA of one's own in a directory."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tailrace.cli.output import Output, examples, output_option


@click.group(name="cert", no_args_is_help=True)
def command() -> None:
    """Make certificates, and a configuration that uses them."""


@command.command(
    name="init",
    epilog=examples(
        "tailrace cert init ./secure",
        "tailrace cert init ./secure --san broker.example.com --san 10.0.0.7 --host 0.0.0.0",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--san",
    "names",
    multiple=True,
    metavar="NAME",
    help="A further host name or address of the broker. May be given several times.",
)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where listeners are bound."
)
@output_option
def init_directory(directory: Path, names: tuple[str, ...], host: str, output: Output) -> None:
    """Make a CA, a certificate for the broker and tailrace.toml in DIR.

    The certificate is for localhost, 127.0.0.1, ::1 and this machine's host name, for one year. Nothing that
    exists is written over. DIR/ca/ca.key signs further certificates: keep it apart from the broker.
    """
    from tailrace.server.secure_start import init

    files = init(directory, host=host, names=names)
    if output.format != "table":
        output.record({"files": [str(each) for each in files]})
        return
    for each in files:
        click.echo(f"made {each}")
    config = files[-1]
    click.echo(f"Next:  tailrace user create admin --config {config}")
    click.echo(f"       tailrace up --config {config}")


@command.command(name="client", epilog=examples("tailrace cert client ./secure billing"))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("name", metavar="NAME")
@output_option
def make_client_certificate(directory: Path, name: str, output: Output) -> None:
    """Make a certificate for a client by the CA in DIR, for listeners with tls.client_ca.

    The client is User:CN=NAME to the broker, or User:NAME with tls.principal = "CN".
    """
    from tailrace.net.certificate import distinguished_name
    from tailrace.server.secure_start import add_client

    files, made = add_client(directory, name)
    principal = f"User:{distinguished_name(made.certificate.subject)}"
    if output.format != "table":
        output.record({"files": [str(each) for each in files], "principal": principal})
        return
    for each in files:
        click.echo(f"made {each}")
    click.echo(f"The broker knows its owner as {principal}")
