package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Label names the workers that have certain properties.
type Label struct {
	Name       string
	Properties map[string]string `yaml:",inline" min:"1" doc:"platform properties; a worker with all of them has the label"`
}

// A Unit is the measure of runs in a cohort.
type Unit string

// The units. The empty one is SizeClasses.
const (
	// SizeClasses: a run on a worker of size class n counts as n; of class 0 as 1.
	SizeClasses Unit = "size_class"
	// Slots: each run counts as 1.
	Slots Unit = "slots"
)

// Choices returns the words for a unit.
func (Unit) Choices() []string { return []string{string(SizeClasses), string(Slots)} }

// A Cohort is a set of workers that are shared by quotas. Labels are names of Labels.
type Cohort struct {
	Name   string
	Labels []string `yaml:"labels,required" min:"1" doc:"names of labels; workers whose labels are all among these are in the cohort" example:"[linux-x86]"`
	Unit   Unit     `yaml:"unit" default:"size_class" doc:"unit of an action: the size class of its worker, or 1 (slots)"`
}

// Cost is the cost of a run on a worker of a size class.
func (c Cohort) Cost(class uint32) int64 {
	if c.Unit == Slots {
		return 1
	}
	return max(int64(class), 1)
}

// A Config has the cohorts. It is read-only.
type Config struct {
	Labels  []Label
	Cohorts []Cohort
}

// A Fault is an error in a Config.
type Fault struct {
	// Label or Cohort names the wrong entry; the other one is empty.
	Label, Cohort string
	Reason        string
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Cohort != "" {
		return fmt.Sprintf("cohort %q: %s", f.Cohort, f.Reason)
	}
	return fmt.Sprintf("label %q: %s", f.Label, f.Reason)
}

// Validate returns the first Fault. It refuses cohorts that can have no worker, and labels whose
// workers are in no cohort.
func (c Config) Validate() error {
	labels := map[string]Label{}
	for _, l := range c.Labels {
		if f := c.fault(l, labels); f != "" {
			return &Fault{Label: l.Name, Reason: f}
		}
		labels[l.Name] = l
	}
	names := map[string]bool{}
	for _, co := range c.Cohorts {
		f := ""
		switch {
		case co.Name == "":
			f = "it has no name"
		case names[co.Name]:
			f = "it is here twice"
		case len(co.Labels) == 0:
			f = "it has no labels, so no worker can be in it"
		case co.Unit != "" && co.Unit != SizeClasses && co.Unit != Slots:
			f = fmt.Sprintf("unit %q is neither %s nor %s", co.Unit, SizeClasses, Slots)
		}
		names[co.Name] = true
		for i, name := range co.Labels {
			_, known := labels[name]
			switch {
			case f != "":
			case !known:
				f = fmt.Sprintf("there is no label %q", name)
			case slices.Contains(co.Labels[:i], name):
				f = fmt.Sprintf("label %q is here twice", name)
			}
		}
		if f == "" {
			f = c.equalled(co)
		}
		if f == "" {
			f = c.shadowed(co, labels)
		}
		if f != "" {
			return &Fault{Cohort: co.Name, Reason: f}
		}
	}
	return nil
}

// fault returns the error of a label, given those before it.
func (c Config) fault(l Label, before map[string]Label) string {
	if l.Name == "" {
		return "it has no name"
	}
	if _, ok := before[l.Name]; ok {
		return "it is here twice"
	}
	if len(l.Properties) == 0 {
		return "it has no properties, so every worker would have it"
	}
	for _, other := range c.Labels {
		if _, ok := before[other.Name]; ok && maps.Equal(other.Properties, l.Properties) {
			return fmt.Sprintf("it has the same properties as label %q", other.Name)
		}
	}
	return ""
}

// equalled reports that an earlier cohort has the same labels, so that no worker can be in the
// later one.
func (c Config) equalled(co Cohort) string {
	for _, other := range c.Cohorts {
		switch {
		case other.Name == co.Name:
			return ""
		case len(other.Labels) == len(co.Labels) && co.hasAll(other.Labels):
			return fmt.Sprintf("it has the same labels as cohort %q, which all workers with them are in", other.Name)
		}
	}
	return ""
}

// hasAll reports whether a cohort has all of some labels.
func (c Cohort) hasAll(names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(c.Labels, n) })
}

// shadowed reports that every worker with some label of a cohort also has one of an earlier cohort,
// and that no cohort has both.
func (c Config) shadowed(co Cohort, labels map[string]Label) string {
	for _, other := range c.Cohorts {
		if other.Name == co.Name {
			break
		}
		for _, name := range co.Labels {
			for _, its := range other.Labels {
				wide, narrow := labels[name], labels[its]
				together := slices.ContainsFunc(c.Cohorts, func(x Cohort) bool { return x.hasAll([]string{name, its}) })
				if !together && (narrow.within(wide) || wide.within(narrow)) {
					return fmt.Sprintf("one of label %q and of %q in cohort %q implies the other: workers with both would be in no cohort",
						name, its, other.Name)
				}
			}
		}
	}
	return ""
}

// within reports whether every worker with l also has wide.
func (l Label) within(wide Label) bool {
	for k, v := range wide.Properties {
		if got, ok := l.Properties[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Of returns the cohort of workers with the properties in has: the one that has all of their
// labels; if several do, the one with the fewest other labels, then the first. It is false for
// workers without a label, and if no cohort has all labels.
func (c Config) Of(has func(name, value string) bool) (cohort Cohort, ok bool) {
	var names []string
	for _, l := range c.Labels {
		all := true
		for name, value := range l.Properties {
			all = all && has(name, value)
		}
		if all {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return Cohort{}, false
	}
	for _, co := range c.Cohorts {
		if co.hasAll(names) && (!ok || len(co.Labels) < len(cohort.Labels)) {
			cohort, ok = co, true
		}
	}
	return cohort, ok
}

// Names returns the names of the cohorts, for messages.
func (c Config) Names() string {
	names := make([]string, len(c.Cohorts))
	for i, co := range c.Cohorts {
		names[i] = co.Name
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
