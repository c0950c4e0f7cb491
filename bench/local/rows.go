package local

import (
	"fmt"
	"slices"

	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/report"
)

const (
	rowWallSandbox = "wall_over_sandbox"
	rowWallLocal   = "wall_over_local"
	rowCPUSandbox  = "cpu_over_sandbox"
	rowCPULocal    = "cpu_over_local"
	rowMount       = "mount_ms"
	rowMount95     = "mount_ms_p95"
	rowOutput      = "output_written"

	// After the name of a work.
	latency    = "ms"
	latency99  = "ms_p99"
	rate       = "per_s_8"
	allCPU     = "cpu_us"
	switches   = "switches"
	commandCPU = "cpu_command_us"
)

// rowOfJobs returns the name of the row for a value of --jobs.
func rowOfJobs(jobs int) string { return fmt.Sprintf("jobs%d_over_local", jobs) }

func buildRows() []string {
	names := []string{rowWallSandbox, rowWallLocal, rowCPUSandbox, rowCPULocal}
	for _, jobs := range otherJobs {
		names = append(names, rowOfJobs(jobs))
	}
	return append(names, rowMount, rowMount95)
}

// stagesInOrder returns all stages of an action.
func stagesInOrder() []string {
	return append(append([]string{beforeWorker}, stages...), afterWorker)
}

// row returns the name of a row of small actions.
func (w work) row(what string) string { return string(w) + "_" + what }

func (w work) rowOfStage(stage string) string { return w.row(stage + "_ms") }

// A programRow is a row with the CPU time of one program.
type programRow struct {
	what string
	of   func(s *noopSample) used
}

// programRows returns the rows of the programs of a work. Worker and scheduler may be one.
func programRows(w work) []programRow {
	rows := []programRow{
		{"cpu_scheduler_us", func(s *noopSample) used { return s.scheduler }},
		{"cpu_worker_us", func(s *noopSample) used { return s.worker }},
		{"cpu_launcher_us", func(s *noopSample) used { return s.launchers }},
		{"cpu_client_us", func(s *noopSample) used { return s.clients }},
		{commandCPU, func(s *noopSample) used { return used{us: s.commands} }},
	}
	if w.inOne() {
		return rows[1:]
	}
	return rows
}

func rowsOfOneClient(w work) []string {
	names := []string{w.row(latency), w.row(latency99), w.row(allCPU), w.row(switches)}
	for _, r := range programRows(w) {
		names = append(names, w.row(r.what))
	}
	for _, stage := range stagesInOrder() {
		names = append(names, w.rowOfStage(stage))
	}
	return names
}

func rowNames() []string {
	names := buildRows()
	for _, w := range works {
		names = append(append(names, rowsOfOneClient(w)...), w.row(rate))
	}
	names = append(names, mixed.row(mixedRate), mixed.row(mixedCPU), rowOutput)
	return append(names, floor.Names()...)
}

// rows returns the rows of the results.
func (b *localBench) rows() []report.Row {
	all := slices.Concat(b.ratios(), b.mounts(), b.outputRows())
	for _, w := range works {
		all = append(all, b.noopRows(w)...)
	}
	all = append(all, b.mixedRows()...)
	all = append(all, b.floors.Rows()...)
	return slices.DeleteFunc(all, func(r report.Row) bool { return r.Value == nil || !b.o.Wants(r.Name) })
}

// row makes a row from the values of the measured programs and of the programs for comparison.
func row(name, unit, note string, values, others []float64) report.Row {
	if len(values) == 0 {
		return report.Row{}
	}
	r := report.NewRow(name, report.Median(values), unit)
	r.Note = report.Spread(values)
	if note != "" {
		r.Note = note + "; " + r.Note
	}
	if len(others) > 0 {
		r.Baseline = "compared " + report.FormatValue(report.Median(others))
	}
	return r
}

// ratios returns the time of each build on the farm divided by the time of the build without a farm
// in the same run.
func (b *localBench) ratios() []report.Row {
	wall := func(s buildSample) float64 { return s.wall }
	of := func(name string, jobs int, without string, value func(buildSample) float64, wanted string) report.Row {
		over := func(programs string) (ratios []float64) {
			plain := b.builds[buildCell{strategy: without}]
			for i, s := range b.builds[buildCell{byRemote, jobs, programs}] {
				if i < len(plain) {
					ratios = append(ratios, value(s)/value(plain[i]))
				}
			}
			return ratios
		}
		var others []float64
		if b.o.compare != "" {
			others = over(b.o.compare)
		}
		r := row(name, "ratio", b.buildNote(buildCell{byRemote, jobs, b.o.programs}, buildCell{strategy: without}), over(b.o.programs), others)
		r.Wanted = wanted
		return r
	}
	rows := []report.Row{
		of(rowWallSandbox, usualJobs, bySandbox, wall, "≤ 0.95"), of(rowWallLocal, usualJobs, byLocal, wall, "≤ 1.10"),
		of(rowCPUSandbox, usualJobs, bySandbox, buildSample.cpu, "≤ 1.0"), of(rowCPULocal, usualJobs, byLocal, buildSample.cpu, "≤ 1.15"),
	}
	for _, jobs := range otherJobs {
		r := of(rowOfJobs(jobs), jobs, byLocal, wall, "")
		if jobs == 200 {
			r.Wanted = "≤ 1.15"
		}
		rows = append(rows, r)
	}
	return rows
}

// buildNote describes the medians of both sides.
func (b *localBench) buildNote(farm, plain buildCell) string {
	with, without := b.builds[farm], b.builds[plain]
	if len(with) == 0 || len(without) == 0 {
		return ""
	}
	of := func(all []buildSample, value func(buildSample) float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, value(s))
		}
		return report.Median(values)
	}
	wall := func(s buildSample) float64 { return s.wall }
	bazel, ran := func(s buildSample) float64 { return s.bazel }, func(s buildSample) float64 { return s.ran }
	return fmt.Sprintf("%.1f s over %.1f s; CPU Bazel %.1f, farm %.1f, launchers %.1f, commands %.1f s over Bazel %.1f, commands %.1f s",
		of(with, wall), of(without, wall), of(with, bazel), of(with, func(s buildSample) float64 { return s.farm }),
		of(with, func(s buildSample) float64 { return s.launchers }), of(with, func(s buildSample) float64 { return s.commands }),
		of(without, bazel), of(without, ran))
}

func (b *localBench) mounts() []report.Row {
	quantile := func(q float64) func(buildSample) float64 {
		return func(s buildSample) float64 { return report.Quantile(slices.Sorted(slices.Values(s.mounts)), q) }
	}
	of := func(name, wanted string, value func(buildSample) float64) report.Row {
		values := func(programs string) (values []float64) {
			for _, s := range b.builds[buildCell{byRemote, usualJobs, programs}] {
				values = append(values, value(s))
			}
			return values
		}
		r := row(name, "ms", "a root appears, in the build", values(b.o.programs), values(b.o.compare))
		r.Wanted = wanted
		return r
	}
	return []report.Row{of(rowMount, "≤ 1", quantile(0.5)), of(rowMount95, "≤ 3", quantile(0.95))}
}

func (b *localBench) outputRows() []report.Row {
	r := row(rowOutput, "ratio", "bytes written to the disk for each byte of a large output", b.outputs[b.o.programs], b.outputs[b.o.compare])
	r.Wanted = "≤ 1.01"
	return []report.Row{r}
}

// aims are the wanted values of rows of small actions.
var aims = map[string]string{
	"noop_ms": "≤ 1.6", "noop_per_s_8": "≥ 1200", "noop_cpu_us": "≤ 600",
	"tree_ms": "≤ 4", "tree_per_s_8": "≥ 400",
	"up_noop_ms": "≤ 1.6", "up_noop_per_s_8": "≥ 1200", "up_noop_cpu_us": "≤ 600",
	"up_tree_ms": "≤ 4", "up_tree_per_s_8": "≥ 400",
	"up_mixed_cpu_ms": "≤ 8",
}

// actionRow makes a row from a value of the samples of a cell, with the measured programs and with
// those for comparison.
func (b *localBench) actionRow(c noopCell, what, unit, note string, value func(*noopSample) float64) report.Row {
	values := func(programs string) (values []float64) {
		c.programs = programs
		all := b.noops[c]
		for i := range all {
			values = append(values, value(&all[i]))
		}
		return values
	}
	r := row(c.work.row(what), unit, note, values(b.o.programs), values(b.o.compare))
	r.Wanted = aims[c.work.row(what)]
	return r
}

func (b *localBench) noopRows(w work) []report.Row {
	of := func(what, unit string, clients int, note string, value func(*noopSample) float64) report.Row {
		return b.actionRow(noopCell{work: w, clients: clients}, what, unit, note, value)
	}
	rows := []report.Row{
		of(latency, "ms", 1, "", func(s *noopSample) float64 { return report.Median(s.ms) }),
		of(latency99, "ms", 1, "", func(s *noopSample) float64 {
			return report.Quantile(slices.Sorted(slices.Values(s.ms)), 0.99)
		}),
		of(rate, "1/s", manyClients, "", func(s *noopSample) float64 { return s.perSecond }),
		of(allCPU, "µs", 1, "scheduler, worker and launcher", func(s *noopSample) float64 {
			return s.scheduler.us + s.worker.us + s.launchers.us
		}),
		of(switches, "", 1, "threads of these that waited", func(s *noopSample) float64 {
			return s.scheduler.switches + s.worker.switches + s.launchers.switches
		}),
	}
	for _, p := range programRows(w) {
		note := ""
		if all := b.noops[noopCell{w, 1, b.o.programs}]; len(all) > 0 {
			note = fmt.Sprintf("threads waited %.1f times", p.of(&all[0]).switches)
		}
		rows = append(rows, of(p.what, "µs", 1, note, func(s *noopSample) float64 { return p.of(s).us }))
	}
	for _, stage := range stagesInOrder() {
		rows = append(rows, of(stage+"_ms", "ms", 1, "", func(s *noopSample) float64 { return report.Median(s.stages[stage]) }))
	}
	return rows
}
