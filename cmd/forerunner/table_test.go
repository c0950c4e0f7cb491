package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/printable"
)

// TestColumns prints rows of any length on terminals of any width: no line is wider, and each has
// what always stays.
func TestColumns(t *testing.T) {
	columns := []column{
		{title: "NAME"},
		{title: "ENDED", rank: 1, least: 5, isEnd: true},
		{title: "RESULT", least: 6, enough: 9},
		{title: "TARGET", least: 8, enough: 20, isEnd: true},
		{title: "USER", rank: 2, least: 4},
	}
	const narrowest = 8 + gap + 6 + gap + 8
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		return strings.Repeat([]string{"x", "設", "é", "🙂"}[random.IntN(4)], 1+random.IntN([]int{4, 20, 300}[random.IntN(3)]))
	}
	for width := narrowest; width < 300; width++ {
		var rows [][]string
		for i := range 1 + random.IntN(5) {
			rows = append(rows, []string{fmt.Sprintf("op%06d", i), text(), "failed" + text(), text() + "end", text()})
		}
		var out strings.Builder
		if err := printColumns(&out, columns, rows, width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != len(rows)+1 || !strings.HasPrefix(lines[0], "NAME") {
			t.Fatalf("width %d:\n%s", width, &out)
		}
		for i, line := range lines {
			if n := printable.Columns(line); n > width {
				t.Errorf("width %d: a line takes %d columns:\n%s", width, n, line)
			}
			if i > 0 && (!strings.HasPrefix(line, rows[i-1][0]+"  ") || !strings.Contains(line, "  faile") || !strings.Contains(line, "end")) {
				t.Errorf("width %d: a line lacks the operation, the outcome or the target:\n%s", width, line)
			}
		}
	}
}

// TestColumnsByRank leaves out what says least, and shares the rest.
func TestColumnsByRank(t *testing.T) {
	columns := []column{{title: "A"}, {title: "B", rank: 2, least: 4}, {title: "C", least: 4, enough: 8, isEnd: true}, {title: "D", rank: 1, least: 4}}
	rows := [][]string{{"aaaa", "bbbbbbbb", "cccccccccccc", "dddddd"}}
	for width, want := range map[int]string{
		0:  "A     B         C             D\naaaa  bbbbbbbb  cccccccccccc  dddddd\n",
		10: "A     C\naaaa  …ccc\n",
		16: "A     C     D\naaaa  …ccc  ddd…\n",
		20: "A     C         D\naaaa  …ccccccc  ddd…\n",
		22: "A     B     C     D\naaaa  bbb…  …ccc  ddd…\n",
		28: "A     B     C         D\naaaa  bbb…  …ccccccc  dddddd\n",
		36: "A     B         C             D\naaaa  bbbbbbbb  cccccccccccc  dddddd\n",
		99: "A     B         C             D\naaaa  bbbbbbbb  cccccccccccc  dddddd\n",
	} {
		var out strings.Builder
		if err := printColumns(&out, columns, rows, width); err != nil || out.String() != want {
			t.Errorf("width %d: %v\n%swant\n%s", width, err, &out, want)
		}
	}
}
