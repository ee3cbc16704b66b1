"""`gnomon completion`."""

from __future__ import annotations

import click


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes gnomon's commands and options in SHELL.

    \b
    bash:  gnomon completion bash >> ~/.bashrc
    zsh:   gnomon completion zsh >> ~/.zshrc
    fish:  gnomon completion fish > ~/.config/fish/completions/gnomon.fish
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    root = ctx.find_root().command
    # `source` of the bash class would start bash to ask for its version; the script itself needs no shell.
    made = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell](
        root, {}, "gnomon", "_GNOMON_COMPLETE"
    )
    click.echo(made.source_template % made.source_vars())
