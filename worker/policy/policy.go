package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/sandbox"
)

// A Set says how the actions of a worker are run, by what their platforms ask for:
// the first policy that matches counts. docs/EXECUTION.md#execution-policies describes the file. The
// zero Set has none.
type Set struct{ list []policy }

// A policy is one entry of the file, checked.
type policy struct {
	name        string
	match       map[string]string // "*" is any value
	wrappers    [][]*template.Template
	environment map[string]string
	nice        int
	network     *bool  // nil: as the action says
	users       *Users // nil: the worker's
	allow       []string
}

// policyEntry is one entry as it is written.
type policyEntry struct {
	line int

	Name        string            `yaml:"name"`
	Match       map[string]string `yaml:"match"`
	Wrappers    [][]string        `yaml:"wrappers"`
	Environment map[string]string `yaml:"environment"`
	Nice        int               `yaml:"nice"`
	Network     string            `yaml:"network"`
	User        string            `yaml:"user"`
	Allow       []string          `yaml:"allow"`
}

// UnmarshalYAML notes the line, for errors to name.
func (e *policyEntry) UnmarshalYAML(n *yaml.Node) error {
	type plain policyEntry
	e.line = n.Line
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if !slices.Contains(policyFields, n.Content[i].Value) {
				return fmt.Errorf("line %d: field %q is none of %s", n.Content[i].Line, n.Content[i].Value, strings.Join(policyFields, ", "))
			}
		}
	}
	return n.Decode((*plain)(e))
}

var policyFields = []string{"name", "match", "wrappers", "environment", "nice", "network", "user", "allow"}

// Load reads a file. Its errors name the file, and the line and field that
// are wrong. A wrapper that this machine does not have is an error.
func Load(file string) (*Set, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// Parse is Load of what is in a file.
func Parse(text []byte) (*Set, error) {
	var written struct {
		Policies []policyEntry `yaml:"policies"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&written); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p := &Set{}
	for i, e := range written.Policies {
		checked, err := e.check()
		if err == nil && len(e.Match) == 0 && i < len(written.Policies)-1 {
			err = errors.New("match: matches every action, so it must be the last")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: policy %q: %w", e.line, e.Name, err)
		}
		p.list = append(p.list, checked)
	}
	return p, nil
}

func (e *policyEntry) check() (policy, error) {
	p := policy{name: e.Name, match: e.Match, environment: e.Environment, nice: e.Nice}
	if e.Name == "" {
		return p, errors.New("name: is missing")
	}
	for name, value := range e.Environment {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return p, fmt.Errorf("environment: variable %q is malformed", name)
		}
	}
	if e.Nice < -20 || e.Nice > 19 {
		return p, fmt.Errorf("nice: %d is not from -20 to 19", e.Nice)
	}
	var err error
	if e.Network != "" {
		if p.network, err = parseNetwork(e.Network); err != nil {
			return p, fmt.Errorf("network: %w", err)
		}
	}
	if e.User != "" {
		if p.users, err = LookUpUsers(e.User); err != nil {
			return p, fmt.Errorf("user: %w", err)
		}
	}
	if err := sandbox.CheckAllowed(e.Allow); err != nil {
		return p, fmt.Errorf("allow: %w", err)
	}
	p.allow = e.Allow
	for i, w := range e.Wrappers {
		checked, err := checkWrapper(w)
		if err != nil {
			return p, fmt.Errorf("wrappers[%d]: %w", i, err)
		}
		p.wrappers = append(p.wrappers, checked)
	}
	return p, nil
}

// checkWrapper finds the program and parses the arguments.
func checkWrapper(words []string) ([]*template.Template, error) {
	if len(words) == 0 {
		return nil, errors.New("has no program")
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return nil, err
	}
	if program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	var parsed []*template.Template
	for i, w := range append([]string{program}, words[1:]...) {
		t, err := template.New("argument").Parse(w)
		if err == nil {
			err = t.Execute(io.Discard, anyAction{})
		}
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		parsed = append(parsed, t)
	}
	return parsed, nil
}

// anyAction is what templates are tried out with.
type anyAction struct{}

func (anyAction) Property(string) string           { return "value" }
func (anyAction) PropertyOr(string, string) string { return "value" }

// actionData is what templates see of an action.
type actionData map[string]string

// Property returns the value of a platform property, which the action must have.
func (d actionData) Property(name string) (string, error) {
	v, ok := d[name]
	if !ok {
		return "", fmt.Errorf("the action has no platform property %q", name)
	}
	return v, nil
}

// PropertyOr returns the value of a platform property, or otherwise.
func (d actionData) PropertyOr(name, otherwise string) string {
	if v, ok := d[name]; ok {
		return v
	}
	return otherwise
}

// properties are a platform's; of several with the same name the first counts.
func properties(platform *repb.Platform) map[string]string {
	m := map[string]string{}
	for _, p := range platform.GetProperties() {
		if _, ok := m[p.GetName()]; !ok {
			m[p.GetName()] = p.GetValue()
		}
	}
	return m
}

// Suffice returns an error if a policy has fewer users than there are positions.
func (p *Set) Suffice(positions int) error {
	if p == nil {
		return nil
	}
	for i := range p.list {
		if err := p.list[i].users.Suffice(positions); err != nil {
			return fmt.Errorf("policy %q: %w", p.list[i].name, err)
		}
	}
	return nil
}

// choose returns the policy for an action, or nil.
func (p *Set) choose(properties map[string]string) *policy {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.list, func(c policy) bool {
		for name, want := range c.match {
			if got, ok := properties[name]; !ok || (want != "*" && got != want) {
				return false
			}
		}
		return true
	})
	if i < 0 {
		return nil
	}
	return &p.list[i]
}

// apply has p decide what it says something about.
func (p *policy) apply(e *Execution, asked map[string]string) (err error) {
	if e.Args, err = p.wrap(e.Args, asked); err != nil {
		return err
	}
	e.Env, e.Nice, e.Sandbox.Allow = p.addEnvironment(e.Env), p.nice, p.allow
	if p.network != nil {
		e.Sandbox.NoNetwork, e.Unasked = !*p.network, false
	}
	if p.users != nil {
		e.Users = p.users
	}
	return nil
}

// wrap returns args behind the wrappers, the first one outermost.
func (p *policy) wrap(args []string, properties map[string]string) ([]string, error) {
	var all []string
	for _, w := range p.wrappers {
		for _, t := range w {
			var text strings.Builder
			if err := t.Execute(&text, actionData(properties)); err != nil {
				return nil, err
			}
			if strings.ContainsRune(text.String(), 0) {
				return nil, errors.New("an argument of a wrapper contains NUL")
			}
			all = append(all, text.String())
		}
	}
	return append(all, args...), nil
}

// addEnvironment returns env with the policy's variables, which win.
func (p *policy) addEnvironment(env []string) []string {
	all := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, ours := p.environment[name]
		return ours
	})
	for _, name := range slices.Sorted(maps.Keys(p.environment)) {
		all = append(all, name+"="+p.environment[name])
	}
	return all
}

func parseNetwork(s string) (*bool, error) {
	on := s == "on"
	if !on && s != "off" {
		return nil, fmt.Errorf("%s is neither on nor off", strconv.Quote(s))
	}
	return &on, nil
}
