package config

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

const (
	schemaFile  = "../../deploy/scheduler.schema.json"
	exampleFile = "../../deploy/scheduler.example.yaml"
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
		if err := Check(ConfigFile(t, text)); err != nil {
			t.Errorf("a program refuses\n%s: %v", text, err)
		}
		if err := bySchema(schema, text); err != nil {
			t.Errorf("the schema refuses\n%s: %v", text, err)
		}
	}
	both := 0
	for _, test := range refusedConfigs() {
		if err := Check(ConfigFile(t, test.text)); err == nil {
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

// TestSchemaHasAllFields compares the fields of each mapping in the schema with those that the
// programs know, and has the example name each of them.
func TestSchemaHasAllFields(t *testing.T) {
	schema, _ := readSchema(t)
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		before, after string // around a field of the mapping
		of            *jsonschema.Schema
	}{
		{"", "", schema},
		{"queues:\n- {", "}", schema.Properties["queues"].Items},
		{"queues:\n- levels:\n  - {", "}", schema.Defs["level"]},
		{"size_classes:\n- {", "}", schema.Properties["size_classes"].Items},
		{"learn_sizes: {", "}", schema.Properties["learn_sizes"]},
		{"learn_sizes: {rules: {", "}}", schema.Properties["learn_sizes"].Properties["rules"]},
		{"cohorts: {c: {", "}}", schema.Properties["cohorts"].AdditionalProperties},
		{"preemption: {", "}", schema.Properties["preemption"]},
		{"tokens:\n- {", "}", schema.Properties["tokens"].Items},
		{"access:\n- {", "}", schema.Properties["access"].Items},
	} {
		names := slices.Sorted(maps.Keys(m.of.Properties))
		err := Check(ConfigFile(t, m.before+"nonesuch: 0"+m.after))
		if err == nil {
			t.Errorf("after %q a program takes a field that does not exist", m.before)
			continue
		}
		var known []string
		_, list, _ := strings.Cut(err.Error(), "here are ")
		for _, found := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(list, -1) {
			known = append(known, found[1])
		}
		if !slices.Equal(names, known) {
			t.Errorf("after %q the schema has %q, programs know %q", m.before, names, known)
		}
		for _, name := range names {
			if !regexp.MustCompile(`(?m)(^[ -]*|\{|, )` + name + `:`).Match(example) {
				t.Errorf("%s does not show %s", exampleFile, name)
			}
		}
	}
}
