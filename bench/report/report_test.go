package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := Median(test.values); got != test.want {
			t.Errorf("median of %v is %v, want %v", test.values, got, test.want)
		}
	}
}

// TestTimesOf reads a line of /proc/stat: the time that guests had is part of another column.
func TestTimesOf(t *testing.T) {
	all, busy := timesOf("cpu  100 20 300 4000 500 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if all != 49410*time.Millisecond || busy != 4410*time.Millisecond {
		t.Errorf("%v and %v", all, busy)
	}
	for _, text := range []string{"", "intr 1 2 3 4 5 6 7 8", "cpu 1 2"} {
		if all, busy := timesOf(text); all != 0 || busy != 0 {
			t.Errorf("%q has %v and %v", text, all, busy)
		}
	}
}

// TestOthers compares with times that another program, and then this one, have used.
func TestOthers(t *testing.T) {
	u := NewCPUUse()
	if u.all == 0 {
		t.Fatal("the times of the machine are unknown")
	}
	u.all -= time.Hour
	u.busy -= 30 * time.Minute
	if got := u.Others(); got < 0.4 || got > 0.6 {
		t.Errorf("others had a share of %v, want about a half", got)
	}
	u.own -= 30 * time.Minute
	if got := u.Others(); got > 0.1 {
		t.Errorf("others had a share of %v, want almost none", got)
	}
}

func TestFormatValue(t *testing.T) {
	for value, want := range map[float64]string{
		1234.5: "1234", 12.34: "12.3", 1.005: "1.00", 0.1: "0.10", 0.0123: "0.012", 0: "0.000",
	} {
		if got := FormatValue(value); got != want {
			t.Errorf("%v is written %q, want %q", value, got, want)
		}
	}
}

func TestWriteRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	rows := []Row{NewRow("find", 0.5, "ratio"), NotMeasured("gxx", "ratio", "no g++")}
	if err := Write(dir, "vfs.json", rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "vfs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0]["name"] != "find" || got[0]["value"] != 0.5 || got[0]["unit"] != "ratio" {
		t.Errorf("wrote %s", text)
	}
	if value, ok := got[1]["value"]; !ok || value != nil || got[1]["note"] != "not measured: no g++" {
		t.Errorf("a row without a value was written as %v", got[1])
	}
	for _, key := range []string{"name", "value", "unit", "baseline", "note"} {
		if _, ok := got[0][key]; !ok || len(got[0]) != 5 {
			t.Errorf("row %v: want exactly five keys, %q among them", got[0], key)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

func TestPrintRows(t *testing.T) {
	var b strings.Builder
	r := NewRow("find", 0.5, "ratio")
	r.Wanted, r.Note = "≥ 0.4", "short"
	if err := Print(&b, []Row{r, NotMeasured("a_longer_name", "ratio", "no reason")}); err != nil {
		t.Fatal(err)
	}
	want := `
| row           | value | unit  | wanted | baseline | note                    |
| ------------- | ----- | ----- | ------ | -------- | ----------------------- |
| find          | 0.50  | ratio | ≥ 0.4  |          | short                   |
| a_longer_name | –     | ratio |        |          | not measured: no reason |
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		name string
		o    Options
		want string // part of the error, or empty
	}{
		{"all", Options{Runs: 1}, ""},
		{"some", Options{Runs: 5, Only: []string{"find", "daemon_cpu_s", "root_ms"}}, ""},
		{"unknown row", Options{Runs: 5, Only: []string{"fund"}}, `no row "fund"`},
		{"no runs", Options{}, "--runs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.o.Validate([]string{"find", "root_ms", "daemon_cpu_s"})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
