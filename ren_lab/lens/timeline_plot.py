"""The timeline of a run of the ring runtime: a lane per worker, and below it what each ring holds, on one axis of time."""

from typing import TYPE_CHECKING, Any

from ren_lab.lens.theme import PLOT_FONT, RING_COLOURS, format_bytes, format_count, format_seconds, theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ren_lab.runtime import RunReport

_WIDTH_INCHES = 9.0  # 900 pixels at 100 dots per inch
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_NAMED_SHARE = 0.07  # of the time axis: a bar at least this wide carries its name
_LANES_NAMED = 32
_RESOURCES = {"task_window": "slots in use", "heap": "heap in use", "dep_pool": "edges in use"}


def timeline_dict(report: "RunReport") -> dict[str, Any]:
    """What the plot shows. Times are nanoseconds from the start of the run, virtual on a simulator.

    Returns a dictionary with
        title: the finding, in a sentence;
        lanes: the workers' names;
        tasks: `name`, `lane`, `start`, `end`, `ring`, `site`, `failed`;
        waits: `resource`, `ring`, `site`, `start`, `end` of submissions that waited for room;
        use: for each resource and each ring that was used, steps (time, in use);
        end: the end of the run;
        busy: the share of the lanes' time in which kernels ran.

    Raises:
        ValueError: the run kept no timeline.
    """
    line = report.timeline
    if line is None:
        raise ValueError("this run recorded no timeline; run it with `worker.run(program, timeline=True)`")
    tasks: list[dict[str, Any]] = [
        {
            "name": t.name, "lane": t.lane, "start": t.start_ns, "end": t.end_ns, "ring": t.ring, "site": t.site,
            "failed": t.failed,
        }
        for t in line.tasks
    ]  # fmt: skip
    waits: list[dict[str, Any]] = [
        {"resource": w.resource, "ring": w.ring, "site": w.site, "start": w.start_ns, "end": w.end_ns} for w in line.waits
    ]
    use: dict[str, dict[int, list[tuple[int, int]]]] = {resource: {} for resource in _RESOURCES}
    for cursors in line.cursors:
        for resource in _RESOURCES:
            tail, head = getattr(cursors, resource)
            use[resource].setdefault(cursors.ring, []).append((cursors.time_ns, head - tail))
    for rings in use.values():
        for ring in [ring for ring, steps in rings.items() if not any(held for _, held in steps)]:
            del rings[ring]
    end = max([t["end"] for t in tasks] + [w["end"] for w in waits] + [c.time_ns for c in line.cursors], default=0)
    ran = sum(t["end"] - t["start"] for t in tasks)
    busy = ran / (end * len(line.lanes)) if end and line.lanes else 0.0
    return {
        "title": _title(report, len(tasks), waits, end, busy),
        "lanes": list(line.lanes), "tasks": tasks, "waits": waits, "use": use, "end": end, "busy": busy,
    }  # fmt: skip


def _title(report: "RunReport", calls: int, waits: list[dict[str, Any]], end: int, busy: float) -> str:
    lanes = format_count(len(report.lanes), "lane")
    title = f"{format_count(calls, 'kernel call')} on {lanes} in {format_seconds(end / 1e9)}, {busy:.0%} busy"
    if waits:
        longest = max(waits, key=lambda w: w["end"] - w["start"])
        resource = longest["resource"].replace("_", " ")
        title += f"; submission waited {format_count(len(waits), 'time')}, longest for the {resource} of ring {longest['ring']}"
    return title + ("; some failed" if report.failed else "")


def plot_timeline(report: "RunReport", theme_name: str = "light") -> "Figure":
    """Who ran what when, and what the rings held meanwhile.

    Args:
        report: what `Worker.run(program, timeline=True)` returned.
        theme_name: "light" or "dark".

    Raises:
        ValueError: the run kept no timeline.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data, look = timeline_dict(report), theme(theme_name)
    scale, unit = next((s, u) for s, u in _UNITS if data["end"] >= s or s == 1.0)
    held = [resource for resource, rings in data["use"].items() if rings]
    height = 1.1 + min(0.28 * (len(data["lanes"]) + 1), 5.0) + 1.15 * len(held)
    with rc_context({"font.family": PLOT_FONT, "font.size": 9.0, "text.color": look["ink"], "axes.labelcolor": look["ink"]}):
        figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=100, facecolor=look["background"], layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(data["title"], x=0.01, ha="left", fontsize=10.5, fontweight="bold", wrap=True)
        ratios = [max(len(data["lanes"]) + 1, 3) * 0.28] + [1.0] * len(held)
        axes = figure.subplots(1 + len(held), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        for axis in axes:
            axis.set_facecolor(look["background"])
            axis.tick_params(colors=look["ink"])
            for side, spine in axis.spines.items():
                spine.set_visible(side in ("left", "bottom"))
                spine.set_color(look["rule"])
        _draw_lanes(axes[0], data, scale, look)
        for axis, resource in zip(axes[1:], held, strict=True):
            _draw_use(axis, resource, data, scale, look)
        axes[-1].set_xlim(0, max(data["end"], 1) / scale * 1.02)
        virtual = "" if report.platform in ("cpu", "cuda") else "virtual "
        axes[-1].set_xlabel(f"{virtual}time ({unit})    colour and digit: ring    hatched: a submission waits for room")
    return figure


def _draw_lanes(axis: Any, data: dict[str, Any], scale: float, look: Any) -> None:
    lanes = data["lanes"]
    for task in data["tasks"]:
        colour = look[RING_COLOURS[task["ring"]]]
        left, width = task["start"] / scale, (task["end"] - task["start"]) / scale
        hatch = "xx" if task["failed"] else None
        axis.barh(
            task["lane"], width, left=left, height=0.78, color=colour, edgecolor=look["background"], linewidth=0.6, hatch=hatch
        )
        if task["end"] - task["start"] > _NAMED_SHARE * data["end"]:
            text = f"{task['ring']} {task['name']}" + (" failed" if task["failed"] else "")
            axis.text(
                left + width / 2, task["lane"], text, ha="center", va="center", fontsize=7.5, clip_on=True,
                color=look.text_on(RING_COLOURS[task["ring"]]),
            )  # fmt: skip
    for wait in data["waits"]:
        left, width = wait["start"] / scale, (wait["end"] - wait["start"]) / scale
        axis.barh(-1, width, left=left, height=0.78, color="none", edgecolor=look["vermillion"], hatch="////", linewidth=0.6)
    names = ["program", *lanes] if len(lanes) <= _LANES_NAMED else []
    if names:
        axis.set_yticks(range(-1, len(lanes)), names, fontsize=7.5)
    else:
        axis.set_ylabel(format_count(len(lanes), "lane"))
    axis.set_ylim(len(lanes) - 0.4, -1.6)


def _draw_use(axis: Any, resource: str, data: dict[str, Any], scale: float, look: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_ylabel(_RESOURCES[resource])
    for ring, steps in sorted(data["use"][resource].items()):
        colour = look[RING_COLOURS[ring]]
        times, held = [t / scale for t, _ in steps], [h for _, h in steps]
        axis.step(times, held, where="post", color=colour, linewidth=1.4)
        top = max(held)
        axis.annotate(
            f"ring {ring}: {format_bytes(top) if resource == 'heap' else top}", (times[held.index(top)], top), xytext=(3, 3),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    axis.set_ylim(0, None)
    axis.margins(y=0.25)
    if resource == "heap":
        axis.set_yticks([0, max(held for steps in data["use"][resource].values() for _, held in steps)])
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(int(value))))
    else:
        axis.yaxis.get_major_locator().set_params(integer=True)


def report_html(report: "RunReport") -> str:
    """The timeline, if there is one, above the totals."""
    import base64
    import html
    import io

    picture = ""
    if report.timeline is not None:
        image = io.BytesIO()
        plot_timeline(report).savefig(image, format="png")
        data = base64.b64encode(image.getvalue()).decode("ascii")
        alt = html.escape(timeline_dict(report)["title"], quote=True)
        picture = f'<img src="data:image/png;base64,{data}" alt="{alt}" style="max-width:100%"/>'
    return f'<div class="ren-lab">{picture}<pre>{html.escape(str(report))}</pre></div>'
