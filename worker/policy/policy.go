package policy

import (
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

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs"
)

// A Set has the execution policies of a worker: the first one that matches the platform of an
// action applies. docs/EXECUTION.md#execution-policies describes the file. The zero Set has none.
type Set struct{ list []policy }

// A policy is one entry of the file, checked.
type policy struct {
	name        string
	match       map[string]string // "*" is any value
	wrappers    [][]argument
	environment map[string]string
	nice        int
	network     *bool  // nil: as the action asks
	users       *Users // nil: the worker's
	allow       []string
}

// An argument of a wrapper has its text and its parsed form.
type argument struct {
	text string
	*template.Template
}

// A File is the content of a file of execution policies.
type File struct {
	Policies []Entry `yaml:"policies" doc:"execution policies; the first one that matches an action counts"`
}

// An Entry is one policy in the file.
type Entry struct {
	Name        string            `yaml:"name,required" doc:"name of the policy, for logs" example:"arm"`
	Match       map[string]string `yaml:"match" doc:"platform properties of matching actions, * is any value; a policy without them matches all actions and must be the last" example:"{arch: arm64}"`
	Wrappers    [][]string        `yaml:"wrappers" doc:"commands that run the action's command, the first one outermost; arguments are Go templates with .Property and .PropertyOr" example:"[[nice, -n, \"5\"]]"`
	Environment map[string]string `yaml:"environment" doc:"environment variables, which override those of the action" example:"{QEMU_CPU: max}"`
	Nice        int               `yaml:"nice" default:"0" min:"-20" max:"19" doc:"niceness, added to that of the worker"`
	Network     Network           `yaml:"network" doc:"network access; default as the action asks" example:"off"`
	User        string            `yaml:"user" doc:"user of the command: a name, UID:GID or a range FIRST-LAST; default the worker's --user" example:"nobody"`
	Allow       []string          `yaml:"allow" doc:"what the sandbox allows beyond its defaults: words from docs/EXECUTION.md" example:"[netlink]"`

	checked policy
}

// A Network is on or off; empty: as the action asks.
type Network string

// Choices returns the words for a Network.
func (Network) Choices() []string { return []string{"on", "off"} }

// Load reads a file. Its errors name file, line, column and field. A wrapper that this machine does
// not have is an error.
func Load(file string) (*Set, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

// Parse is Load for the content of a file.
func Parse(text []byte) (*Set, error) { return parse("policies", text) }

func parse(file string, text []byte) (*Set, error) {
	var written File
	if err := settings.Parse(file, text, &written); err != nil {
		return nil, err
	}
	p := &Set{}
	for _, e := range written.Policies {
		p.list = append(p.list, e.checked)
	}
	return p, nil
}

// Validate returns an error if a policy can never apply.
func (f *File) Validate() error {
	for i, e := range f.Policies {
		if len(e.Match) == 0 && i < len(f.Policies)-1 {
			return misplaced{fmt.Sprintf("policies[%d]", i), errors.New("this matches every action, so it must be the last")}
		}
	}
	return nil
}

// A misplaced error is about a part of the input.
type misplaced struct {
	where string
	error
}

// Where returns the part.
func (m misplaced) Where() string { return m.where }

// Unwrap returns the error itself.
func (m misplaced) Unwrap() error { return m.error }

// Validate checks an entry against this machine.
func (e *Entry) Validate() error {
	e.checked = policy{name: e.Name, match: e.Match, environment: e.Environment, nice: e.Nice, allow: e.Allow}
	if e.Name == "" {
		return misplaced{".name", errors.New("a policy needs a name")}
	}
	for name, value := range e.Environment {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return misplaced{".environment", fmt.Errorf("variable %q is malformed", name)}
		}
	}
	if e.Network != "" {
		on := e.Network == "on"
		e.checked.network = &on
	}
	if e.User != "" {
		users, err := LookUpUsers(e.User)
		if err != nil {
			return misplaced{".user", err}
		}
		e.checked.users = users
	}
	if err := sandbox.CheckAllowed(e.Allow); err != nil {
		return misplaced{".allow", err}
	}
	for i, w := range e.Wrappers {
		checked, err := checkWrapper(w)
		if err != nil {
			return misplaced{fmt.Sprintf(".wrappers[%d]", i), err}
		}
		e.checked.wrappers = append(e.checked.wrappers, checked)
	}
	return nil
}

// checkWrapper finds the program and parses the arguments.
func checkWrapper(words []string) ([]argument, error) {
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
	var parsed []argument
	for i, w := range append([]string{program}, words[1:]...) {
		t, err := template.New("argument").Parse(w)
		if err == nil {
			err = t.Execute(io.Discard, anyAction{})
		}
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		parsed = append(parsed, argument{w, t})
	}
	return parsed, nil
}

// anyAction is a test value for templates.
type anyAction struct{}

func (anyAction) Property(string) string           { return "value" }
func (anyAction) PropertyOr(string, string) string { return "value" }

// actionData is the data of an action for templates.
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

// Key identifies everything in p that affects commands: not names, nor how fast a command runs.
func (p *Set) Key() (key []string) {
	if p == nil {
		return nil
	}
	for i := range p.list {
		c := &p.list[i]
		parts := [][]string{pairs(c.match), nil, pairs(c.environment), nil, nil, c.allow}
		for _, w := range c.wrappers {
			parts[1] = append(parts[1], strconv.Itoa(len(w)))
			for _, argument := range w {
				parts[1] = append(parts[1], argument.text)
			}
		}
		if c.network != nil {
			parts[3] = []string{strconv.FormatBool(*c.network)}
		}
		if c.users != nil {
			parts[4] = c.users.Key()
		}
		for _, part := range parts {
			key = append(append(key, strconv.Itoa(len(part))), part...)
		}
	}
	return key
}

// pairs returns the names and values of a map, in the order of the names.
func pairs(m map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, name, m[name])
	}
	return all
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

// owners are those of the users of all policies.
func (p *Set) owners() (all []vfs.Owner) {
	if p == nil {
		return nil
	}
	for i := range p.list {
		all = append(all, p.list[i].users.owners()...)
	}
	return all
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

// apply applies the settings of p.
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
