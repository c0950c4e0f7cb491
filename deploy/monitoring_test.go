package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// ruleFile is the file format of Prometheus's rules.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// promtool runs Prometheus's tool on files of a folder.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("make test-needs, or apt-get install prometheus: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlerts has Prometheus check the rules, and each alert fire when it should.
func TestAlerts(t *testing.T) {
	promtool(t, "prometheus", "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
	doc := metricsPage(t)
	rules := readRules(t)
	tested := testedAlerts(t)
	bare := rules // promtool compares annotations, too, which are for people
	for i := range rules.Groups {
		for j := range rules.Groups[i].Rules {
			r := &bare.Groups[i].Rules[j]
			if r.Annotations["summary"] == "" || r.Annotations["runbook"] == "" {
				t.Errorf("alert %s does not say what it is and what to do", r.Alert)
			}
			if !strings.Contains(doc, "\n| `"+r.Alert+"` | ") {
				t.Errorf("docs/METRICS.md does not have alert %s", r.Alert)
			}
			if !slices.Contains(tested, r.Alert) {
				t.Errorf("no test makes alert %s fire", r.Alert)
			}
			r.Annotations = nil
		}
	}
	dir := t.TempDir()
	tests, err := os.ReadFile("prometheus/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writeYAML(t, filepath.Join(dir, "rules.yaml"), bare)
	if err := os.WriteFile(filepath.Join(dir, "rules_test.yaml"), tests, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "test", "rules", "rules_test.yaml")
}

// TestDashboard has Prometheus parse each query of the dashboard.
func TestDashboard(t *testing.T) {
	file := ruleFile{Groups: []ruleGroup{{Name: "dashboard"}}}
	for i, q := range dashboardQueries(t) {
		file.Groups[0].Rules = append(file.Groups[0].Rules, rule{Record: fmt.Sprintf("q%d", i), Expr: q})
	}
	if len(file.Groups[0].Rules) < 20 {
		t.Fatalf("the dashboard has %d queries", len(file.Groups[0].Rules))
	}
	dir := t.TempDir()
	writeYAML(t, filepath.Join(dir, "dashboard.yaml"), file)
	promtool(t, dir, "check", "rules", "--lint=none", "dashboard.yaml")
}

// TestMetricsOfQueries holds rules and dashboard to docs/METRICS.md.
func TestMetricsOfQueries(t *testing.T) {
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(forerunner_[a-z_]+)` \\| (\\w+)").FindAllStringSubmatch(metricsPage(t), -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_sum"], known[m[1]+"_count"] = true, true, true
		}
	}
	name := regexp.MustCompile(`\bforerunner_[a-z_]+`)
	check := func(where, query string) {
		for _, m := range name.FindAllString(query, -1) {
			if !known[m] {
				t.Errorf("%s: docs/METRICS.md does not have %s", where, m)
			}
		}
	}
	for _, group := range readRules(t).Groups {
		for _, r := range group.Rules {
			check("alert "+r.Alert, r.Expr)
			check("runbook of "+r.Alert, r.Annotations["runbook"])
		}
	}
	for _, q := range dashboardQueries(t) {
		check("dashboard", q)
	}
}

func metricsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readRules(t *testing.T) (rules ruleFile) {
	t.Helper()
	text, err := os.ReadFile("prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// testedAlerts returns the alerts that a test has fire.
func testedAlerts(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("prometheus/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				names = append(names, a.Name)
			}
		}
	}
	return names
}

// dashboardQueries returns all queries of the dashboard, with values for Grafana's variables.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("grafana/forerunner.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	replace := []string{"$__rate_interval", "5m"}
	for _, v := range dashboard.Templating.List {
		replace = append(replace, "$"+v.Name, "any")
	}
	values := strings.NewReplacer(replace...)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			q := values.Replace(target.Expr)
			if strings.Contains(q, "$") {
				t.Errorf("panel %q has a variable that is not known: %s", p.Title, q)
			}
			queries = append(queries, q)
		}
	}
	return queries
}

func writeYAML(t *testing.T, name string, v any) {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
