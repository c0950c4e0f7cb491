package operator

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/test/programs"
)

// rare metrics are shown only while something is wrong.
var rare = map[string]bool{"forerunner_scheduler_worker_suspended": true}

// expectDocumentedMetrics holds docs/METRICS.md to the metrics that a program shows at an
// address, in both directions. All that the program does must have happened once.
func expectDocumentedMetrics(f *programs.Test, program, address string) {
	f.Helper()
	documented, shown := documentedMetrics(f, program), shownMetrics(f, address)
	if len(documented) < 10 {
		f.Fatalf("docs/METRICS.md has %d metrics of the %s", len(documented), program)
	}
	for name, what := range documented {
		if got, ok := shown[name]; !ok && !rare[name] {
			f.Errorf("docs/METRICS.md has %s, which the %s does not show", name, program)
		} else if ok && got != what {
			f.Errorf("docs/METRICS.md says of %s %q, the %s %q", name, what, program, got)
		}
	}
	for name := range shown {
		if _, ok := documented[name]; !ok {
			f.Errorf("the %s shows %s, which docs/METRICS.md does not have", program, name)
		}
	}
}

// documentedMetrics returns type and labels of all metrics that a program is to have.
func documentedMetrics(f *programs.Test, program string) map[string]string {
	f.Helper()
	doc, err := os.ReadFile(filepath.Join(programs.Root(f.T), "docs", "METRICS.md"))
	if err != nil {
		f.Fatal(err)
	}
	metrics := map[string]string{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `forerunner_") {
			continue
		}
		of := strings.TrimSpace(cells[4])
		if of != "both" && of != "scheduler" && of != "worker" {
			f.Errorf("docs/METRICS.md has a metric of %q", of)
		}
		if of == program || of == "both" {
			labels := map[string]bool{}
			for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
				labels[m[1]] = true
			}
			metrics[quoted.FindStringSubmatch(cells[1])[1]] = kindOf(strings.TrimSpace(cells[2]), labels)
		}
	}
	return metrics
}

// shownMetrics reads the same from /metrics.
func shownMetrics(f *programs.Test, address string) map[string]string {
	f.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		f.Fatal(err)
	}
	defer response.Body.Close()
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	label := regexp.MustCompile(`[{,]([a-z_]+)="`)
	name := ""
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "# TYPE "); ok {
			kind := ""
			name, kind, _ = strings.Cut(rest, " ")
			kinds[name], labels[name] = kind, map[string]bool{}
		} else if strings.HasPrefix(lines.Text(), "forerunner_") {
			for _, m := range label.FindAllStringSubmatch(lines.Text(), -1) {
				labels[name][m[1]] = true
			}
		}
	}
	if err := lines.Err(); err != nil || response.StatusCode != http.StatusOK {
		f.Fatalf("/metrics: %s, %v", response.Status, err)
	}
	metrics := map[string]string{}
	for name, kind := range kinds {
		if strings.HasPrefix(name, "forerunner_") {
			metrics[name] = kindOf(kind, labels[name])
		}
	}
	return metrics
}

func kindOf(kind string, labels map[string]bool) string {
	delete(labels, "le") // of the buckets of a histogram
	return fmt.Sprint(kind, " by ", slices.Sorted(maps.Keys(labels)))
}
