package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/web/text"
)

const (
	// completionTimeout bounds for how long a shell waits.
	completionTimeout = 2 * time.Second
	// mostCompleted is how many operations are looked at.
	mostCompleted = 1000
)

// Values are the possible values of an argument, each with its description.
type values map[string]string

// list returns what a shell is told of those that continue what is typed.
func (v values) list(typed string) []cobra.Completion {
	list := []cobra.Completion{}
	for _, value := range slices.Sorted(maps.Keys(v)) {
		if value != "" && strings.HasPrefix(value, typed) {
			list = append(list, cobra.CompletionWithDesc(printable.Name(value), printable.Name(v[value])))
		}
	}
	return list
}

// complete returns the possible values of an argument of a verb, by its name in the verb's usage,
// and whether more text may follow a value.
func (c *adminCall) complete(ctx context.Context, cmd *cobra.Command, args []string, typed string) (list []cobra.Completion, goesOn bool) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	names := strings.Fields(cmd.Use)[1:]
	names = slices.DeleteFunc(names, func(name string) bool { return name == "|" || name == "[flags]" })
	several := len(names) > 0 && strings.Contains(names[len(names)-1], "...")
	switch {
	case several:
		args = nil // each is as the others
	case len(args) < len(names):
		names = names[len(args) : len(args)+1]
	default:
		return nil, false
	}
	for _, name := range names {
		found, more := c.valuesOf(ctx, strings.Trim(name, "[].,"), cmd, typed)
		list, goesOn = append(list, found...), goesOn || more
	}
	return list, goesOn
}

// valuesOf returns what a placeholder stands for.
func (c *adminCall) valuesOf(ctx context.Context, placeholder string, cmd *cobra.Command, typed string) (list []cobra.Completion, goesOn bool) {
	ofWorkers := cmd.Name() == "workers" || cmd.HasParent() && cmd.Parent().Name() == "workers"
	switch placeholder {
	case "NAME":
		return c.operationNames(ctx, cmd.Name() != "cancel", strings.HasPrefix(typed, "o")).list(typed), false
	case "OPERATION":
		return c.operationNames(ctx, false, true).list(typed), false
	case "ACTION":
		return c.actions(ctx).list(typed), false
	case "COHORT":
		cohorts, _ := c.quotaNames(ctx)
		return cohorts.list(typed), false
	case "INSTANCE":
		_, instances := c.quotaNames(ctx)
		return instances.list(typed), false
	case "PATTERN", "NAME=VALUE":
		switch {
		case placeholder != "PATTERN":
			return completePattern(c.recordAttributes(ctx), typed)
		case ofWorkers:
			return completePattern(c.workerAttributes(ctx), typed)
		}
		return completePattern(c.operationAttributes(ctx), typed)
	}
	return nil, false
}

// operationNames are those that wait or run and, if they are wanted, the last that have ended.
func (c *adminCall) operationNames(ctx context.Context, ended, prefixed bool) values {
	all := values{}
	add := func(name, target, mnemonic, state string) {
		if !prefixed {
			name = strings.TrimPrefix(name, names.OperationPrefix)
		}
		all[name] = strings.TrimSpace(cmp.Or(target, "no target") + " " + mnemonic + " " + state)
	}
	if ended {
		if list, err := c.ListRecords(ctx, &admin.ListRecordsRequest{PageSize: 100}); err == nil {
			for _, r := range list.GetRecords() {
				add(r.GetOperation(), r.GetTarget(), r.GetMnemonic(), text.Ago(r.GetEnded())+" ago")
			}
		}
	}
	if list, err := c.ListOperations(ctx, &admin.ListOperationsRequest{PageSize: mostCompleted}); err == nil {
		for _, op := range list.GetOperations() {
			state := "queued"
			if op.GetWorker() != "" {
				state = "executing"
			}
			add(op.GetName(), op.GetTarget(), op.GetMnemonic(), state)
		}
	}
	return all
}

// actions returns the actions of the latest completed operations.
func (c *adminCall) actions(ctx context.Context) values {
	all := values{}
	if list, err := c.ListRecords(ctx, &admin.ListRecordsRequest{PageSize: 100}); err == nil {
		for _, r := range slices.Backward(list.GetRecords()) {
			all[r.GetAction()] = strings.TrimSpace(cmp.Or(r.GetTarget(), "no target") + " " + r.GetMnemonic())
		}
	}
	return all
}

func (c *adminCall) quotaNames(ctx context.Context) (cohorts, instances values) {
	cohorts, instances = values{}, values{}
	if list, err := c.ListQuotas(ctx, &admin.ListQuotasRequest{}); err == nil {
		for _, cohort := range list.GetCohorts() {
			cohorts[cohort.GetName()] = "in " + cohort.GetUnit()
			for _, q := range cohort.GetQuotas() {
				instances[q.GetInstanceName()] = ""
			}
		}
	}
	return cohorts, instances
}

// Attributes are values by the names that patterns have.
type attributes map[string]values

func (a attributes) add(name, value string) {
	if a[name] == nil {
		a[name] = values{}
	}
	a[name][printable.Glob(value)] = ""
}

// completePattern continues the last part of a pattern: with the names there are or, behind one,
// with its values.
func completePattern(known attributes, typed string) (list []cobra.Completion, goesOn bool) {
	begin := typed[:strings.LastIndexByte(typed, ',')+1]
	name, _, hasName := strings.Cut(typed[len(begin):], "=")
	all := values{}
	if hasName {
		for v := range known[name] {
			if v != "" && (begin == "" || !strings.Contains(v, ",")) {
				all[begin+name+"="+v] = ""
			}
		}
		return all.list(typed), false
	}
	for n := range known {
		all[begin+n+"="] = ""
	}
	return all.list(typed), true
}

func (c *adminCall) operationAttributes(ctx context.Context) attributes {
	all := attributes{}
	for _, name := range pattern.OperationAttributes() {
		all[name] = values{}
	}
	all.add("stage", "queued")
	all.add("stage", "executing")
	list, err := c.ListOperations(ctx, &admin.ListOperationsRequest{PageSize: mostCompleted})
	if err != nil {
		return all
	}
	for _, op := range list.GetOperations() {
		for name, value := range map[string]string{
			"operation": op.GetName(), "action": op.GetAction(), "client": op.GetClient(), "instance": op.GetInstanceName(),
			"invocation": op.GetInvocation(), "mnemonic": op.GetMnemonic(), "target": op.GetTarget(), "worker": machine(op.GetWorker()),
		} {
			all.add(name, value)
		}
	}
	return all
}

func (c *adminCall) workerAttributes(ctx context.Context) attributes {
	all := attributes{}
	list, err := c.ListWorkers(ctx, &admin.ListWorkersRequest{})
	if err != nil {
		return all
	}
	for _, w := range list.GetWorkers() {
		for name, value := range w.GetIdentity() {
			all.add(name, value)
		}
	}
	for _, d := range list.GetDrains() { // to undo them
		for name, value := range d.GetPattern().GetAttributes() {
			all.add(name, value)
		}
	}
	return all
}

func (c *adminCall) recordAttributes(ctx context.Context) attributes {
	all := attributes{}
	for _, name := range []string{"action", "instance", "invocation", "mnemonic", "operation", "target", "user", "worker"} {
		all[name] = values{}
	}
	list, err := c.ListRecords(ctx, &admin.ListRecordsRequest{PageSize: mostCompleted})
	if err != nil {
		return all
	}
	for _, r := range list.GetRecords() {
		for name, value := range map[string]string{
			"action": r.GetAction(), "instance": r.GetInstanceName(), "invocation": r.GetInvocation(), "mnemonic": r.GetMnemonic(),
			"operation": r.GetOperation(), "target": r.GetTarget(), "user": r.GetUser(), "worker": machine(r.GetWorker()),
		} {
			all.add(name, value)
		}
	}
	return all
}

// machine returns a worker as a value of a pattern, which has no commas.
func machine(worker string) string { return strings.ReplaceAll(text.Machine(worker), ",", "?") }
