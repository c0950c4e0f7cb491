package request

import (
	"slices"
	"strings"
)

// hows are properties with which other services and their clients describe how an action runs: in
// which image, with which worker of the build tool, with how much memory. No worker needs to have
// them.
var hows = []string{
	"container-image", "persistentWorkerKey", "persistentWorkerProtocol",
	"EstimatedCPU", "EstimatedMemory", "EstimatedFreeDiskBytes", "EstimatedComputeUnits",
	"cache-silo-key", "workload-isolation-type", "recycle-runner", "preserve-workspace",
}

// isHow reports whether a property is about how an action runs, and not where.
func isHow(name string) bool {
	rest, docker := strings.CutPrefix(name, "docker")
	return docker && rest != "" && (rest[0] < 'a' || rest[0] > 'z') || slices.Contains(hows, name)
}

// folds reports whether the values of a property match in upper and lower case: those of the REv2
// platform lexicon, which some clients write otherwise (reclient and siso: OSFamily=Linux).
func folds(name string) bool { return name == "OSFamily" || name == "ISA" }

// is reports whether two properties are the same to a worker.
func (p Property) is(q Property) bool {
	return p == q || p.Name == q.Name && folds(p.Name) && strings.EqualFold(p.Value, q.Value)
}

func contains(ps []Property, q Property) bool { return slices.ContainsFunc(ps, q.is) }

// Has reports whether the platform has a property with that value, or implies it.
func (p Platform) Has(name, value string) bool {
	q := Property{name, value}
	return contains(p.properties, q) || contains(p.implied, q)
}

// Knows reports whether a worker that offers p has a value for a property.
func (p Platform) Knows(name string) bool {
	return p.names(name) || slices.ContainsFunc(p.implied, func(q Property) bool { return q.Name == name })
}

// Lacks returns the properties of an action that a worker that offers p lacks. A property about how
// an action runs counts only if the worker has another value for it.
func (p Platform) Lacks(asked Platform) (list []Property) {
	for _, q := range asked.properties {
		if !p.Has(q.Name, q.Value) && (!isHow(q.Name) || p.names(q.Name)) {
			list = append(list, q)
		}
	}
	return list
}

// Refuses returns the properties that a worker that offers p requires actions to ask for, and that
// this one does not ask for.
func (p Platform) Refuses(asked Platform) (list []Property) {
	for _, q := range p.required {
		if !contains(asked.properties, q) {
			list = append(list, q)
		}
	}
	return list
}

// Fits reports whether a worker that offers p may run an action: it has all properties that the
// action asks for, and the action asks for all properties that the worker requires.
func (p Platform) Fits(asked Platform) bool {
	return len(p.Lacks(asked)) == 0 && len(p.Refuses(asked)) == 0
}

// Distance returns how badly a fitting worker suits an action; less is better. It first counts
// properties about how the action runs that the worker lacks, then properties of the worker that
// the action does not ask for.
func (p Platform) Distance(asked Platform) (unknown, extras int) {
	for _, q := range asked.properties {
		if !p.Has(q.Name, q.Value) {
			unknown++
		}
	}
	for _, q := range p.properties {
		if !contains(asked.properties, q) {
			extras++
		}
	}
	return unknown, extras
}

// Wants returns the names of the properties that a worker needs for p.
func (p Platform) Wants() (names []string) {
	for _, q := range p.properties {
		if !isHow(q.Name) {
			names = append(names, q.Name)
		}
	}
	return names
}
