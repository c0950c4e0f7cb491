package worker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/report"
)

// A workerKind is the isolation of commands.
type workerKind struct{ suffix, sandbox, cgroup, note string }

func workerKinds() []workerKind {
	return []workerKind{
		{"", "namespaces", "auto", "namespaces and cgroups"},
		{"_no_namespaces", "none", "auto", "cgroups"},
		{"_no_cgroups", "namespaces", "off", "namespaces"},
		{"_bare", "none", "off", "neither namespaces nor cgroups"},
	}
}

// A workerRow is computed from the samples of one cell.
type workerRow struct {
	row  report.Row
	cell workerCell
	of   func(s workerSample) float64
}

// rowSandbox is the difference of two rows.
const rowSandbox = "sandbox_ms"

func workerRows() []workerRow {
	var rows []workerRow
	for _, k := range workerKinds() {
		for _, n := range []int{1, 2, 8} {
			c := workerCell{slots: n, clients: n, reportWidth: n, sandbox: k.sandbox, cgroup: k.cgroup}
			note := fmt.Sprintf("%s; slots and clients: %d", k.note, n)
			latency := report.Row{Name: fmt.Sprintf("noop_ms_%d%s", n, k.suffix), Unit: "ms", Note: note}
			rate := report.Row{Name: fmt.Sprintf("noop_per_s_%d%s", n, k.suffix), Unit: "1/s", Note: note}
			switch n {
			case 1:
				latency.Baseline, latency.Wanted = "peer 6.0", "≤ 1.6"
				rate.Baseline, rate.Wanted = "peer 150", "≥ 225"
			case 8:
				latency.Baseline, latency.Wanted = "peer 20", "≤ 13.3"
				rate.Baseline, rate.Wanted = "peer 370", "≥ 1200"
			}
			rows = append(rows,
				workerRow{latency, c, func(s workerSample) float64 { return s.ms }},
				workerRow{rate, c, func(s workerSample) float64 { return s.perSecond }},
				workerRow{
					report.Row{Name: fmt.Sprintf("noop_cpu_ms_%d%s", n, k.suffix), Unit: "ms", Note: note},
					c, func(s workerSample) float64 { return s.farmMS + s.launchersMS },
				})
		}
	}
	for _, width := range []int{0, 2} {
		c := workerCell{slots: 1, clients: 4, reportWidth: width, sandbox: "namespaces", cgroup: "auto"}
		rows = append(rows, workerRow{
			report.Row{Name: fmt.Sprintf("cpu_util_report%d", width), Unit: "ratio", Note: "CPU of commands over time × slots"},
			c, func(s workerSample) float64 { return s.cpu },
		})
	}
	return rows
}

// makes reports whether the cell's actions have outputs.
func (c workerCell) makes() bool { return c.clients > c.slots }

func workerNames() []string {
	names := slices.Concat([]string{rowSandbox}, verifyNames(), floor.Names())
	for _, r := range workerRows() {
		names = append(names, r.row.Name)
	}
	return names
}

// wanted returns the cells to measure, each once.
func (b *workerBench) wanted() []workerCell {
	var cells []workerCell
	seen := map[workerCell]bool{}
	for _, r := range workerRows() {
		alone := r.cell.slots == 1 && !r.cell.makes() && r.cell.cgroup == "auto" // needed for rowSandbox
		if !seen[r.cell] && (b.o.Wants(r.row.Name) || alone && b.o.Wants(rowSandbox)) {
			seen[r.cell] = true
			cells = append(cells, r.cell)
		}
	}
	return cells
}

// rows returns the rows of the medians.
func (b *workerBench) rows() []report.Row {
	var rows []report.Row
	medians := map[string]float64{}
	for _, r := range workerRows() {
		var values, busy, launchers, commands []float64
		for _, s := range b.samples[r.cell] {
			values, busy = append(values, r.of(s)), append(busy, s.busy)
			launchers, commands = append(launchers, s.launchersMS), append(commands, s.commandsMS)
		}
		if len(values) == 0 {
			continue
		}
		v := report.Median(values)
		medians[r.row.Name] = v
		if !b.o.Wants(r.row.Name) {
			continue
		}
		r.row.Value = &v
		r.row.Note += "; " + report.Spread(values)
		if r.cell.makes() {
			r.row.Note += fmt.Sprintf("; a command in the slot %s of the time", report.FormatValue(report.Median(busy)))
		}
		if strings.HasPrefix(r.row.Name, "noop_cpu_ms") {
			r.row.Note += fmt.Sprintf("; launchers %s; beside it commands %s",
				report.FormatValue(report.Median(launchers)), report.FormatValue(report.Median(commands)))
		}
		rows = append(rows, r.row)
	}
	with, ok := medians["noop_ms_1"]
	without, both := medians["noop_ms_1_no_namespaces"]
	if ok && both && b.o.Wants(rowSandbox) {
		r := report.NewRow(rowSandbox, with-without, "ms")
		r.Wanted, r.Note = "< 2", "noop_ms_1 less noop_ms_1_no_namespaces"
		rows = append(rows, r)
	}
	floors := slices.DeleteFunc(b.floors.Rows(), func(r report.Row) bool { return !b.o.Wants(r.Name) })
	return slices.Concat(rows, floors, b.verifyRows())
}
