package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// A panel is one of the dashboard, with what it shows if its queries have no result.
type panel struct {
	Title, Type string
	FieldConfig struct{ Defaults struct{ NoValue string } }
	Targets     []struct{ Expr string }
}

// A queryTest is one of promtool's.
type queryTest struct {
	Expr    string        `yaml:"expr"`
	At      string        `yaml:"eval_time"`
	Samples []querySample `yaml:"exp_samples"`
}

type querySample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// TestDashboardOfUp has Prometheus evaluate the queries of the dashboard over the metrics of
// `forerunner up`: a panel shows something, or says why it does not.
func TestDashboardOfUp(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		programs.Needs(t, "make test-needs, or apt-get install prometheus: %v", err)
	}
	f := programs.New(t, programs.OwnSandbox)
	listen, pages := freeport.Address(f.T), freeport.Address(f.T)
	up := f.Start("forerunner", "up", "--data", "up", "--listen", listen, "--http", pages, "--cache-size", "100M")
	up.WaitFor(&up.Stdout, programs.UpLine)
	for range 2 { // the second one is in the cache
		f.Exec("grpc://"+listen, "--", "true").Expect(0, "")
	}
	f.Exec("grpc://"+listen, "--", "false").Expect(1, "")
	series := scraped(f, pages)
	up.Drain()

	var tests []queryTest
	for _, p := range dashboard(f) {
		if p.Type == "row" || p.FieldConfig.Defaults.NoValue != "" {
			continue
		}
		var any []string
		for _, target := range p.Targets {
			any = append(any, "count("+target.Expr+")")
		}
		tests = append(tests, queryTest{
			Expr: "(" + strings.Join(any, " or ") + ") > bool 0", At: "10m", Samples: []querySample{{"{}", 1}},
		})
	}
	if len(tests) < 15 || len(series) < 100 {
		f.Fatalf("%d panels and %d series", len(tests), len(series))
	}
	text, err := yaml.Marshal(map[string]any{"tests": []any{map[string]any{
		"interval": "1m", "input_series": series, "promql_expr_test": tests,
	}}})
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.Dir, "dashboard_test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		f.Fatal(err)
	}
	if out, err := exec.CommandContext(f.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
		f.Errorf("panels are empty: %v\n%s", err, out)
	}
}

// dashboard returns the panels, with values for Grafana's variables.
func dashboard(f *programs.Test) (panels []panel) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(programs.Root(f.T), "deploy", "grafana", "forerunner.json"))
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Panels []panel }
	if err := json.Unmarshal(text, &file); err != nil {
		f.Fatal(err)
	}
	values := strings.NewReplacer("$__rate_interval", "5m", "$scheduler|$worker", "up", "$scheduler", "up", "$worker", "up", "$instance", ".+")
	for _, p := range file.Panels {
		for i := range p.Targets {
			p.Targets[i].Expr = values.Replace(p.Targets[i].Expr)
		}
	}
	return file.Panels
}

// sample is a line of /metrics.
var sample = regexp.MustCompile(`^(forerunner_\w+)(?:\{(.*)\})? (\S+)$`)

// scraped returns our metrics as promtool takes them, each as a counter that grows by its value
// each minute.
func scraped(f *programs.Test, pages string) (series []map[string]string) {
	f.Helper()
	response, err := http.Get("http://" + pages + "/metrics")
	if err != nil {
		f.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		f.Fatalf("%s, %v", response.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		m := sample.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		labels := strings.Trim(m[2]+`,job="up",instance="`+pages+`"`, ",")
		v := strconv.FormatFloat(math.Abs(value), 'f', -1, 64)
		series = append(series, map[string]string{
			"series": m[1] + "{" + labels + "}", "values": fmt.Sprintf("%s+%sx15", v, v),
		})
	}
	return series
}
