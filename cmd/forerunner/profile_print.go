package main

import (
	"fmt"
	"io"

	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/text"
)

// marks are the printed marks of inputs, with their meaning.
var marks = [prefetch.Marks]struct{ sign, word, meaning string }{
	prefetch.ReadLast:  {"+", "read", "read by the last run"},
	prefetch.Foreseen:  {"~", "foreseen", "foreseen, too"},
	prefetch.NeverRead: {"-", "unused", "never read"},
}

// printProfiled writes a line for each path, and sums.
func printProfiled(w io.Writer, lines []profiledLine, root *prefetch.Node, r prefetch.Record) {
	for _, l := range lines {
		all, count := l.node.All(), ""
		if l.node.Folder {
			count = fmt.Sprintf("/  (%s)", plural.Of(all.Files, "file"))
		}
		fmt.Fprintf(w, "%s %10s  %s%s\n", marks[l.node.Mark].sign, text.Bytes(all.Bytes), l.path, count)
	}
	if !r.KnowsLast() {
		fmt.Fprintln(w, "the files of the last run are unknown: the store has filters only")
	}
	all := root.All()
	for _, mark := range []prefetch.Mark{prefetch.ReadLast, prefetch.Foreseen, prefetch.NeverRead} {
		n := root.Sums[mark]
		fmt.Fprintf(w, "%s %d of %d files, %s of %s: %s\n", marks[mark].sign,
			n.Files, all.Files, text.Bytes(n.Bytes), text.Bytes(all.Bytes), marks[mark].meaning)
	}
}

// A profileReport is the output of printProfiled for scripts.
type profileReport struct {
	Inputs []reportedInput           `json:"inputs"`
	Sums   map[string]reportedAmount `json:"sums"`
	// KnowsLast is false if the reads of the last run cannot be told from predicted ones.
	KnowsLast bool `json:"knows_last"`
}

type reportedInput struct {
	Path   string `json:"path"`
	Folder bool   `json:"folder"`
	Mark   string `json:"mark"`
	reportedAmount
}

type reportedAmount struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func reportOf(lines []profiledLine, root *prefetch.Node, r prefetch.Record) profileReport {
	report := profileReport{Inputs: []reportedInput{}, Sums: map[string]reportedAmount{}, KnowsLast: r.KnowsLast()}
	for _, l := range lines {
		report.Inputs = append(report.Inputs, reportedInput{
			l.path, l.node.Folder, marks[l.node.Mark].word, reportedAmount(l.node.All()),
		})
	}
	for mark, sum := range root.Sums {
		report.Sums[marks[mark].word] = reportedAmount(sum)
	}
	return report
}
