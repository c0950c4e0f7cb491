package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	cases := map[string]string{
		"policies:\n  - name: a\n    wrapers: []": `:3:14: policies[0].wrapers: there is no such field; here are ["allow"`,
		"polices: []":                                              ":1:10: polices: there is no such field",
		"policies:\n  - match: {a: b}":                             ":2:5: policies[0]: field name is missing",
		"policies:\n  - {name: a, nice: 40}":                       `:2:21: policies[0].nice: "40" is more than 19`,
		"policies:\n  - {name: a, nice: b}":                        `:2:21: policies[0].nice: "b" is not a whole number`,
		"policies:\n  - {name: a, network: no}":                    `:2:24: policies[0].network: "no" is none of ["on" "off"]`,
		"policies:\n  - {name: a, user: nobody-such}":              `policies[0].user: "nobody-such" is neither`,
		"policies:\n  - {name: a, user: '1:x'}":                    `policies[0].user: "1:x" is neither`,
		"policies:\n  - {name: a, environment: {'A=B': c}}":        `policies[0].environment: variable "A=B"`,
		"policies:\n  - name: a\n  - name: b":                      ":2:5: policies[0]: this matches every action",
		"policies:\n  - {name: a, wrappers: [[]]}":                 "wrappers[0]: has no program",
		"policies:\n  - {name: a, wrappers: [[no-such-wrapper]]}":  `wrappers[0]: exec: "no-such-wrapper": executable file not found`,
		"policies:\n  - {name: a, wrappers: [[/etc/passwd]]}":      `wrappers[0]: exec: "/etc/passwd": permission denied`,
		"policies:\n  - {name: a, wrappers: [[env, '{{.Prop}}']]}": "wrappers[0]: argument 1: ",
		"policies:\n  - {name: a, wrappers: [[env, '{{']]}":        "wrappers[0]: argument 1: ",
	}
	for text, want := range cases {
		check(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := Load(file); err == nil || !strings.HasPrefix(err.Error(), file+":") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(file + ".gone"); err == nil {
		t.Error("there is no such file")
	}
	check(t, os.WriteFile(file, nil, 0o600))
	if p, err := Load(file); err != nil || p.choose(nil) != nil {
		t.Errorf("an empty file: %v, %v", p, err)
	}
}

// FuzzPolicies reads any file of execution policies, and has actions of some platforms choose.
func FuzzPolicies(f *testing.F) {
	text, err := os.ReadFile("../../docs/EXECUTION.md")
	if err != nil {
		f.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "```yaml\n") {
		if example, _, closed := strings.Cut(part, "```"); i > 0 && closed {
			f.Add([]byte(example))
		}
	}
	f.Add([]byte("policies:\n- {name: a, match: {x: '*'}, wrappers: [[/bin/sh, -c, '{{.Memory}}']], nice: 20}"))
	f.Add([]byte("policies:\n- {name: a, environment: {'': x}, network: maybe, user: '0:0'}"))
	f.Add([]byte("policies: &a\n- {name: a, wrappers: [[/bin/true, '{{range $x := .}}{{end}}']]}\n- *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		for _, properties := range []map[string]string{nil, {"x": "y"}} {
			if chosen := p.choose(properties); chosen != nil && (chosen.name == "" || chosen.nice < -20 || chosen.nice > 19) {
				t.Errorf("policy %+v", chosen)
			}
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKey wants policies to be told apart by all that commands see of them, and by nothing else.
func TestKey(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{
		"name: a", "name: a, match: {p: v}", "name: a, match: {p: w}", "name: a, match: {p: v, q: v}",
		"name: a, environment: {A: b}", "name: a, environment: {A: c}", "name: a, environment: {A: b, B: c}",
		"name: a, network: on", "name: a, network: off", "name: a, user: '7:7'", "name: a, user: '7:8'", "name: a, allow: [perf]",
		"name: a, wrappers: [[env, b]]", "name: a, wrappers: [[env, c]]", "name: a, wrappers: [[env], [env, b]]", "name: a, wrappers: [[env, env, b]]",
		`name: a, wrappers: [[env, '{{define "x"}}b{{end}}{{template "x"}}']]`, `name: a, wrappers: [[env, '{{define "x"}}c{{end}}{{template "x"}}']]`,
	} {
		set, err := Parse([]byte("policies: [{" + text + "}]"))
		check(t, err)
		key := fmt.Sprintf("%q", set.Key())
		if seen[key] != "" {
			t.Errorf("{%s} and {%s} have one key", seen[key], text)
		}
		seen[key] = text
		other, err := Parse([]byte("policies: [{" + strings.Replace(text, "name: a", "name: b, nice: 5", 1) + "}]"))
		check(t, err)
		if again := fmt.Sprintf("%q", other.Key()); again != key {
			t.Errorf("{%s}: name or niceness are in the key: %s, %s", text, key, again)
		}
	}
	if key := (*Set)(nil).Key(); len(key) > 0 {
		t.Errorf("no policies have the key %q", key)
	}
}
