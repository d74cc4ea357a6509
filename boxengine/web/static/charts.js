"use strict";
(() => {
  const place = document.querySelector("[data-history]");
  if (!place) return;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const lines = {
    rate: [["delivered_per_second", "delivered", "good"]],
    waits: [["wait_p50_seconds", "p50", "calm"], ["wait_p99_seconds", "p99", "warn"], ["oldest_wait_seconds", "oldest", "bad"]],
    failed: [["failed_per_second", "failed", "bad"]],
  };
  let span = "hour";
  let plots = [];
  let shown = null;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const short = (value) => (value == null ? "–" : value >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(2)));

  // Waits reach from milliseconds to days: only powers of ten show all of them, and have no place for none.
  const powers = (_, least, most) => {
    if (least == null) return [0.001, 1];
    const low = Math.floor(Math.log10(least));
    return [10 ** low, 10 ** Math.max(low + 1, Math.ceil(Math.log10(most)))];
  };

  const tens = (_, axis, low, high) => {
    const found = [];
    for (let power = Math.round(Math.log10(low)); power <= Math.round(Math.log10(high)); power += 1) found.push(10 ** power);
    return found;
  };

  const draw = (found) => {
    shown = found;
    plots.forEach((plot) => plot.destroy());
    plots = [];
    const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    for (const [name, series] of Object.entries(lines)) {
      const target = place.querySelector(`[data-chart="${name}"]`);
      const most = Math.max(...series.flatMap(([column]) => found[column].map((value) => value || 0)));
      plots.push(new uPlot({
        width: target.clientWidth,
        height: 150,
        legend: { markers: { width: 1 } },
        cursor: { y: false, points: { size: 5 } },
        scales: { y: name === "waits" ? { distr: 3, range: powers } : { range: [0, most > 0 ? most * 1.1 : 1] } },
        axes: [{ ...axis, size: 26, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
          { ...axis, size: 46, ...(name === "waits" ? { splits: tens } : {}), values: (_, ticks) => ticks.map(short) }],
        series: [{ label: "at", value: (_, at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }) : "–") },
          ...series.map(([, label, tone]) => ({ label, stroke: color(tone), width: 1.75, spanGaps: true, points: { show: false }, value: (_, value) => short(value) }))],
      }, [found.at, ...series.map(([column]) => (name === "waits" ? found[column].map((value) => value || null) : found[column]))], target));
    }
    const delivered = found.delivered_per_second.reduce((sum, rate) => sum + rate * found.step_seconds, 0);
    const failed = found.failed_per_second.reduce((sum, rate) => sum + rate * found.step_seconds, 0);
    place.querySelector("[data-summary]").textContent =
      `In the last ${span}: ${Math.round(delivered).toLocaleString("en")} delivered, ${Math.round(failed).toLocaleString("en")} failed attempts.`;
  };

  const load = async () => {
    const asked = span;
    const answer = await fetch(`${place.dataset.history}?span=${asked}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const found = await answer.json();
    // Somebody may have chosen the other span meanwhile.
    if (asked === span) draw(found);
  };

  for (const button of place.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      span = button.dataset.span;
      place.querySelectorAll("[data-span]").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      load();
    });
  }
  dark.addEventListener("change", () => shown && draw(shown));
  addEventListener("resize", () => shown && draw(shown));
  setInterval(() => { if (!document.hidden) load(); }, 15000);
  load();
})();
