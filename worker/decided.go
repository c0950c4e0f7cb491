package worker

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/worker/outputs"
)

// A Setting has the facts that affect commands and are in no other Option. Runs are reused only if
// all of them are equal.
type Setting struct {
	// Program identifies the build of this program: different builds have different values.
	// Required.
	Program string
	// Epoch is changed by the operator when another part of the machine has changed.
	Epoch string
	// Machine names this machine (package machine), because records can move to another one with
	// their folder.
	Machine string
	// Sandbox is the sandbox of the Launchers; nil: none.
	Sandbox *sandbox.Options
	// Inherited are the properties that commands inherit from the process (sandbox.Inherited).
	Inherited []string
	// Bounds are the limits of Outputs that the operator has set. The others depend on the free
	// space when a worker starts, and are practically unlimited.
	Bounds outputs.Policy
}

// A decision says whether a field affects a command: with value it is in the key of runs; otherwise
// it is not, for the reason because.
type decision struct {
	value   func(o *Options) []string
	because string
}

func inKey(value func(o *Options) []string) decision { return decision{value: value} }

// out is the decision that a field is not in the key.
func out(because string) decision { return decision{because: because} }

// Reasons that several fields have.
const (
	takesPart  = "a part that this worker works with; no command sees it"
	whereabout = "where, not how, an action is run"
	notSpeed   = "how fast, not what"
	freshPath  = "new for each run, or of this worker"
	ended      = "a run that meets it fails, and is not remembered"
	planned    = "policy.Defaults.Plan makes it of policy.Defaults and of the Command and platform of the action, which are in the key"
)

// decisions has each field of the types that describe how commands run, by type and name. A new
// field needs a line here: TestDecisions fails until it has one.
func decisions() map[string]map[string]decision {
	return map[string]map[string]decision{
		"policy.Execution": {
			"Args":    out(planned),
			"Env":     out(planned),
			"Nice":    out(notSpeed),
			"Sandbox": out(planned),
			"Unasked": out("what a client is told of a run that failed"),
			"Users":   out(planned),
		},
		"runner.Command": {
			"Args":      out("policy.Execution.Args"),
			"Env":       out("policy.Execution.Env"),
			"Dir":       out("below Root, as the Command says, which is in the key"),
			"Folders":   out("in a sandbox at the same place for all; else " + freshPath),
			"Policy":    out("a type of its own"),
			"Namespace": out("sandbox.Policy.User"),
			"Nice":      out(notSpeed),
			"Stdout":    out(freshPath), "Stderr": out(freshPath),
			"MaxOutputBytes": out("Options.MaxOutputBytes"),
			"Timeout":        out(ended), "Stalled": out(ended), "MaxStalled": out(ended), "Grace": out(ended), "Stuck": out(ended),
		},
		"policy.Defaults": {
			"Sandboxed": inKey(func(o *Options) []string { return []string{strconv.FormatBool(o.Isolation.Sandboxed)} }),
			"Sandbox":   out("a type of its own"),
			"Users":     inKey(func(o *Options) []string { return o.Isolation.Users.Key() }),
			"Policies":  inKey(func(o *Options) []string { return o.Isolation.Policies.Key() }),
		},
		"sandbox.Policy": {
			"User":      out("policy.Defaults.Users has it; which one of a range is for an action to find, not to count on"),
			"NoNetwork": inKey(func(o *Options) []string { return []string{strconv.FormatBool(o.Isolation.Sandbox.NoNetwork)} }),
			"Allow":     inKey(func(o *Options) []string { return o.Isolation.Sandbox.Allow }),
		},
		"sandbox.Options": {
			"Show": inKey(func(o *Options) []string {
				if o.Setting.Sandbox == nil {
					return nil
				}
				return slices.Sorted(slices.Values(o.Setting.Sandbox.Show))
			}),
			"Hide": inKey(func(o *Options) []string {
				if o.Setting.Sandbox == nil {
					return nil
				}
				return slices.Sorted(slices.Values(o.Setting.Sandbox.Hide))
			}),
			"MostTerminals": out(ended),
			"FreshNetworks": out("a network namespace that is used again is as a fresh one"),
		},
		"cgroup.Limits": {
			"CPUs":    out("how many is in Options.Launchers; which ones is chance"),
			"Quota":   out("Options.Launchers"),
			"Memory":  out("Options.Launchers"),
			"Pids":    out("Options.Launchers"),
			"Sockets": out(notSpeed),
		},
		"outputs.Policy": {
			"Bytes":   inKey(func(o *Options) []string { return numbers(o.Setting.Bounds.Bytes) }),
			"Files":   inKey(func(o *Options) []string { return numbers(int64(o.Setting.Bounds.Files)) }),
			"Scratch": inKey(func(o *Options) []string { return numbers(o.Setting.Bounds.Scratch) }),
		},
		"worker.Setting": {
			"Program":   inKey(func(o *Options) []string { return []string{o.Setting.Program} }),
			"Epoch":     inKey(func(o *Options) []string { return []string{o.Setting.Epoch} }),
			"Machine":   out("in ownKey alone: of other workers' machines more is compared"),
			"Sandbox":   out("policy.Defaults.Sandboxed, sandbox.Options"),
			"Bounds":    out("outputs.Policy"),
			"Inherited": inKey(func(o *Options) []string { return o.Setting.Inherited }),
		},
		"worker.Options": optionDecisions(),
	}
}

// optionDecisions returns the decisions about Options.
func optionDecisions() map[string]decision {
	all := map[string]decision{
		"InstancePrefix": out("part of the instance name, which is in the key"),
		"Require":        out("says which actions the worker takes, not how they run"),
		"Platform":       out("part of the action's platform, which is in the key"),
		"SizeClass":      out("its effect is in Launchers"),
		"Launchers":      inKey(func(o *Options) []string { return limitsOf(o.Launchers) }),
		"Roots": inKey(func(o *Options) []string {
			return append(numbers(o.Roots.UpperMemory()), string(o.Roots.Method()))
		}),
		"Reuse":          out(takesPart),
		"Shared":         out(takesPart),
		"Setting":        out("a type of its own"),
		"Isolation":      out("a type of its own"),
		"MaxStall":       out(ended),
		"MaxOutputBytes": inKey(func(o *Options) []string { return numbers(o.MaxOutputBytes) }),
		"Outputs":        out("a type of its own"),
		"Limits":         out(notSpeed), "FetchWidth": out(notSpeed), "ReportWidth": out(notSpeed), "Crew": out(notSpeed), "Profiles": out(notSpeed),
		"StorageHere":  out(notSpeed),
		"Checks":       out("they tell whether the worker takes actions"),
		"CommandsCome": out("a Command is the same, however it comes: its digest is checked"),
		"ResultsGo":    out("a result is the same, however it goes"),
		"Browser":      out("people look at results there after they are made"),
		"WorkDir":      out(freshPath),
	}
	for _, name := range []string{"ID", "CacheAddress"} {
		all[name] = out(whereabout)
	}
	for _, name := range []string{"Scheduler", "Live", "Store", "StoreHealth", "Fetches", "Storage", "DialPeer", "Relaunch", "Logger", "Metrics", "Tracer"} {
		all[name] = out(takesPart)
	}
	return all
}

// key has all facts that affect a command, except its Action, for reuse.KeyOf. Workers with the
// same key run an Action in the same way.
func (o *Options) key() []byte {
	types := decisions()
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	for _, name := range sortedNames(types) {
		for _, field := range sortedNames(types[name]) {
			d := types[name][field]
			if d.value == nil {
				continue
			}
			values := d.value(o)
			text(name + "." + field)
			b = binary.AppendUvarint(b, uint64(len(values)))
			for _, v := range values {
				text(v)
			}
		}
	}
	return b
}

// ownKey is the key for runs of this worker only: no record says which files of the machine a
// command read.
func (o *Options) ownKey() []byte {
	b, machine := o.key(), o.Setting.Machine
	return append(binary.AppendUvarint(b, uint64(len(machine))), machine...)
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func numbers(list ...int64) (texts []string) {
	for _, n := range list {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return texts
}

// limitsOf returns the limits of a worker's slots.
func limitsOf(launchers []*runner.Launcher) []string {
	var all []cgroup.Limits
	for _, l := range launchers {
		all = append(all, l.Limits())
	}
	return limitsKey(all)
}

// limitsKey has each kind of limits once: which slot an action gets is not known before it has one.
func limitsKey(all []cgroup.Limits) (kinds []string) {
	for _, l := range all {
		kinds = append(kinds, strings.Join(numbers(int64(len(l.CPUs)), int64(l.Quota), l.Memory, int64(l.Pids)), " "))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
