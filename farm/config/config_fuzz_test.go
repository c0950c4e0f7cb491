package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// FuzzConfig reads any text as a scheduler's configuration: it is refused by the name of the file,
// or can be put into force.
func FuzzConfig(f *testing.F) {
	for _, page := range []string{"SCHEDULING", "SECURITY"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			f.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "```yaml\n") {
			if example, _, closed := strings.Cut(part, "```"); i > 0 && closed {
				f.Add(example)
			}
		}
	}
	for _, text := range []string{
		"", "queues: &a [*a]", "%TAG ! x\n---\n{a: 1}", "queues: [{levels: [{key: user, weights: {a: .nan}}]}]", "'%d%s': 1", "a: &a {b: *a}",
		"size_classes: [{classes: [1, 1, 4294967296], startup: -1s}]", "learn_sizes: {exponent: .inf, history: 9223372036854775807}",
		"quotas:\n- {cohort: x, instances: {a: {min: -1}}}", "<<: {queues: []}", "? [a]\n: b", "--- 1\n--- 2\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Read(file)
		if err != nil {
			if !strings.HasPrefix(err.Error(), file) {
				t.Errorf("%q: the error does not name the file: %v", text, err)
			}
			if strings.Contains(err.Error(), "%!") && !strings.Contains(text, "%!") {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		if err := c.Check(tuning.Config{}); err != nil {
			t.Errorf("%q: it was taken, but %v", text, err)
		}
		if _, err := sizeclass.NewAnalyzer(records.NewMemory(0), c.LearnSizes); err != nil {
			t.Errorf("%q: it was taken, but %v", text, err)
		}
	})
}
