package config

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

const (
	schemaFile  = "../../deploy/forerunner.schema.json"
	exampleFile = "../../deploy/forerunner.example.yaml"
)

// readSchema returns the schema of a scheduler's configuration.
func readSchema(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &s, r
}

// bySchema returns why the schema refuses a configuration.
func bySchema(r *jsonschema.Resolved, text string) error {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	if v == nil {
		v = map[string]any{}
	}
	return r.Validate(v)
}

// check returns why a program refuses a configuration.
func check(file string) error {
	f, err := Read(file)
	if err != nil {
		return err
	}
	return f.Check(tuning.Config{})
}

// TestSchema has the schema and the programs take, and refuse, the same.
func TestSchema(t *testing.T) {
	_, schema := readSchema(t)
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	taken := []string{
		"", "{}", "queues: []\n", string(example),
		"queues:\n- {platform: {gpu: 1, fast: true}, levels: [{key: user, stickiness: 1m30s, weights: {a: 2}}]}\n",
		"queues:\n- {levels: [{key: constant, name: 1, stickiness: 0}]}\n",
		"learn_sizes: {exponent: 0.2, timeout_multiplier: 2, min_timeout: 1.5s, history: 1000}\n",
		"size_classes:\n- {classes: [1], startup: 0s}\n",
		"access: []\ntokens: []\n",
		"tokens:\n- {issuer: me, audience: forerunner, keys_file: keys.json}\n",
	}
	for _, example := range [][2]string{{"SCHEDULING", "queues"}, {"SCHEDULING", "learn_sizes"}, {"SCHEDULING", "cohorts"}, {"SECURITY", "access"}} {
		_, text := documented(t, example[0], example[1])
		taken = append(taken, text)
	}
	for _, text := range taken {
		if err := check(ConfigFile(t, text)); err != nil {
			t.Errorf("a program refuses\n%s: %v", text, err)
		}
		if err := bySchema(schema, text); err != nil {
			t.Errorf("the schema refuses\n%s: %v", text, err)
		}
	}
	both := 0
	for _, test := range refusedConfigs() {
		if err := check(ConfigFile(t, test.text)); err == nil {
			t.Errorf("no program refuses\n%s", test.text)
		}
		switch err := bySchema(schema, test.text); {
		case err == nil && !test.beyond:
			t.Errorf("the schema does not refuse\n%s", test.text)
		case err != nil && test.beyond:
			t.Errorf("the schema refuses, too:\n%s", test.text)
		case err != nil:
			both++
		}
	}
	t.Logf("%d configurations are taken by both, %d refused", len(taken), both)
}
