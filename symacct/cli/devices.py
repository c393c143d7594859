"""Commands about devices: measuring this one, and the least time of a step on any."""

# Annotations are values in this file, not text: typer reads them.
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symacct.cli.app import app
from symacct.cli.console import drawable, errors, hardware, progress, show, writable
from symacct.cli.step import of_a_step_on

if TYPE_CHECKING:
    from symacct.account import Account


@app.command()
def devices() -> None:
    """List the devices of the table: memory, bandwidth, dense peaks.

    **Example**

    `symacct devices`
    """
    from symacct.hardware import devices as known
    from symacct.report import Column, Section, as_renderables
    from symacct.units import show as amount

    rows = []
    for each in known().values():
        peaks = [each.flops_per_s.get(dtype) for dtype in ("bfloat16", "float32")]
        rates = [amount(rate, "FLOP/s") if rate else "" for rate in peaks]
        rows.append((each.name, amount(each.memory_bytes, "B", binary=True), amount(each.bytes_per_s, "B/s"), *rates))
    titles = ("memory", "bandwidth", "bf16", "fp32")
    columns = (Column("device", "word"), *(Column(title, "value") for title in titles))
    note = "Peaks of matrix products are dense. Sources, links and other dtypes: docs/devices.md, or sa.device(NAME)."
    heading = ["Devices"]
    show(lambda width: as_renderables(heading, [Section("by maker", columns, tuple(rows), True)], [note], width))


@app.command()
def measure(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long kernels are timed; more raises ceilings.")] = 2.0,
    name: Annotated[str, typer.Option(help="What to call it, where the processor's own name does not suit.")] = "",
    out: Annotated[
        str, typer.Option("--out", "-o", help="Write it to this file", metavar="FILE.toml", callback=writable)
    ] = "",
) -> None:
    """Measure this machine: matrix products, other arithmetic and memory, as a device to predict times with.

    **Examples**

    `symacct measure`

    `symacct measure --device cuda --seconds 5 -o this.toml`
    """
    from symacct.device_file import to_toml, write_device
    from symacct.measuring import measure_device

    with errors():
        with progress():
            found = measure_device(device, seconds)
        found = replace(found, name=name) if name else found
        if out:
            write_device(found, out)
        else:
            print(to_toml(found), end="")


@app.command(no_args_is_help=True)
@of_a_step_on
def roofline(
    account: "Account",
    device: Annotated[str, typer.Option(help="A device of the table ('h100'), or FILE.toml:NAME", callback=hardware)],
    level: Annotated[str, typer.Option(help="Bytes as 'eager' runs them, ideally 'fused', or 'minimal'")] = "eager",
    tf32: Annotated[bool, typer.Option("--tf32", help="float32 products may use TF32.")] = False,
    depth: Annotated[int, typer.Option(min=1, help="How deep module paths are shown.")] = 1,
    when: Annotated[str, typer.Option(help="Also: from which size of this dim on is it compute-bound?")] = "",
    took: Annotated[str, typer.Option(help="Also: the MFU of a step that took so long ('0.16 s')")] = "",
    devices: Annotated[int, typer.Option(min=1, help="How many devices took so long.")] = 1,
    plot: Annotated[str, typer.Option(help="Draw the roofline", metavar="FILE.png|svg", callback=drawable)] = "",
    plot_time: Annotated[
        str, typer.Option(help="Draw where the time goes", metavar="FILE.png|svg", callback=drawable)
    ] = "",
) -> None:
    """The least time of a step on a device, and what limits it: by phase, module and operator.

    TARGET and the options up to --check are those of `symacct trace`, but for --device.

    **Examples**

    `symacct roofline examples/two_layer.py:account --at B=16384,D=32768,K=8192 --device h100`

    `symacct roofline examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024 --device a100-sxm4-80gb
    --tf32 --depth 2 --plot roofline.png`

    `symacct roofline model.py:Net --build "B D" --at B=8,D=1024 --device this.toml --took "3 ms"`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong;
    3 ops without a rule under --strict.
    """
    from symacct.roofline import compute_bound_when, hfu, mfu, plot_roofline
    from symacct.roofline import plot_time as draw_time
    from symacct.roofline import roofline as made

    found = made(account, device, tf32, level)
    lines = [found.report(depth)]
    if when:
        others: dict[str, Any] = {name: size for name, size in (account.sizes or {}).items() if name != when}
        lines.append(str(compute_bound_when(made(account.symbolic, device, tf32, level), when, **others)))
    if took:
        lines += [str(measure(account, took, device, devices, tf32=tf32)) for measure in (mfu, hfu)]
    if plot:
        plot_roofline(found, plot, depth)
    if plot_time:
        draw_time(found, plot_time, depth)
    print("\n\n".join(lines))
