package web

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

const (
	// maxCompared bounds the runs of a target that are looked at, maxDifferences what is listed of each kind.
	maxCompared, maxDifferences = 50, 20
	// maxCell bounds the bytes of each text of them.
	maxCell = 1 << 10
	// maxComparedFolders bounds the folders that are read for it, comparePatience the time for all.
	maxComparedFolders = 500
	comparePatience    = 5 * time.Second
)

// A comparison says in what an action differs from that of the run of the same target before it: why its result was not in the
// action cache.
type comparison struct {
	// Other is the run before; nil: none is known.
	Other *recordRow
	Kinds []differences
	// Problem says why Kinds may not be all.
	Problem string
}

// differences are of one kind, such as environment.
type differences struct {
	Kind string
	List []difference
	More int
}

// A difference is what was Before, and is Now; empty: nothing.
type difference struct{ Name, Before, Now string }

// compare compares an operation with the one of the same target before it that had another action.
func (s *Site) compare(ctx context.Context, r *historypb.Record) *comparison {
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	c := &comparison{}
	if !auth.Allowed(ctx, auth.Read, r.GetInstanceName()) && !auth.Allowed(ctx, auth.Observe, "") {
		c.Problem = "You may not read what is in the storage of this instance name."
		return c
	}
	if r.GetTarget() == "" {
		c.Problem = "The client did not say of which target it is."
		return c
	}
	list, err := s.options.Scheduler.ListRecords(ctx, &admin.ListRecordsRequest{
		Pattern: &admin.Pattern{Attributes: map[string]string{"target": globOf(r.GetTarget())}},
		Before:  r.GetEnded(), PageSize: maxCompared,
	})
	if err != nil {
		c.Problem = "Other runs cannot be found now."
		return c
	}
	same := func(o *historypb.Record) bool {
		return o.GetTarget() == r.GetTarget() && o.GetMnemonic() == r.GetMnemonic() && o.GetInstanceName() == r.GetInstanceName() &&
			o.GetDigestFunction() == r.GetDigestFunction() && o.GetAction() != r.GetAction()
	}
	i := slices.IndexFunc(list.GetRecords(), same)
	if i < 0 {
		return c
	}
	other := rowOf(list.GetRecords()[i])
	c.Other = &other
	fn, err := functionOf(r.GetDigestFunction())
	if err != nil {
		c.Problem = err.Error()
		return c
	}
	blobs := s.options.Blobs(r.GetInstanceName(), fn)
	before, err := readAction(ctx, blobs, fn, other.GetAction())
	var now *describedAction
	if err == nil {
		now, err = readAction(ctx, blobs, fn, r.GetAction())
	}
	if err != nil {
		c.Problem = "One of the two actions, or its command, is not, or no longer, in the storage."
		return c
	}
	c.commands(before, now)
	c.inputs(ctx, blobs, fn, before.GetInputRootDigest(), now.GetInputRootDigest())
	return c
}

// A describedAction is an action with its command.
type describedAction struct {
	*repb.Action
	command *repb.Command
}

func readAction(ctx context.Context, blobs Blobs, fn digest.Function, hashAndSize string) (*describedAction, error) {
	d, err := parseDigest(fn, hashAndSize)
	if err != nil {
		return nil, err
	}
	a := &describedAction{&repb.Action{}, &repb.Command{}}
	if _, err := readMessage(ctx, blobs, d, maxShownBytes, a.Action); err != nil {
		return nil, err
	}
	if d, err = digest.FromProto(fn, a.GetCommandDigest()); err != nil {
		return nil, err
	}
	_, err = readMessage(ctx, blobs, d, maxShownBytes, a.command)
	return a, err
}

// platform are its properties by name.
func (a *describedAction) platform() map[string]string {
	p := a.GetPlatform()
	if p == nil {
		//lint:ignore SA1019 what clients of API 2.0 send
		p = a.command.GetPlatform()
	}
	all := map[string]string{}
	for _, x := range p.GetProperties() {
		all[x.GetName()] = strings.TrimPrefix(all[x.GetName()]+", "+x.GetValue(), ", ")
	}
	return all
}

func (a *describedAction) environment() map[string]string {
	all := map[string]string{}
	for _, x := range a.command.GetEnvironmentVariables() {
		all[x.GetName()] = x.GetValue()
	}
	return all
}

// rest is what else is in the key of an action.
func (a *describedAction) rest() map[string]string {
	//lint:ignore SA1019 what clients of API 2.0 send
	outputs := slices.Concat(a.command.GetOutputPaths(), a.command.GetOutputFiles(), a.command.GetOutputDirectories())
	all := map[string]string{
		"working directory": a.command.GetWorkingDirectory(), "outputs": strings.Join(outputs, " "), "salt": fmt.Sprintf("%x", a.GetSalt()),
	}
	if a.GetTimeout() != nil {
		all["timeout"] = a.GetTimeout().AsDuration().String()
	}
	if a.GetDoNotCache() {
		all["cache"] = "the client forbids it"
	}
	return all
}

// commands compares all but inputs.
func (c *comparison) commands(before, now *describedAction) {
	count := func(args []string) map[string]string {
		all := map[string]string{}
		for i, a := range args {
			all[fmt.Sprintf("%4d", i)] = a
		}
		return all
	}
	if x, y := before.command.GetArguments(), now.command.GetArguments(); len(x) == len(y) {
		c.add("Command line", between(count(x), count(y)))
	} else {
		set := func(args []string) map[string]string {
			all := map[string]string{}
			for _, a := range args {
				all[a] = a
			}
			return all
		}
		list := between(set(x), set(y))
		for i := range list {
			list[i].Name = ""
		}
		c.add("Command line", append(list, difference{"number of arguments", fmt.Sprint(len(x)), fmt.Sprint(len(y))}))
	}
	c.add("Environment", between(before.environment(), now.environment()))
	c.add("Platform", between(before.platform(), now.platform()))
	c.add("Other", between(before.rest(), now.rest()))
}

func (c *comparison) add(kind string, list []difference) {
	n := len(list)
	if n == 0 {
		return
	}
	list = list[:min(n, maxDifferences)]
	for i, d := range list {
		list[i] = difference{bounded.Text(d.Name, maxCell), bounded.Text(d.Before, maxCell), bounded.Text(d.Now, maxCell)}
	}
	c.Kinds = append(c.Kinds, differences{kind, list, n - len(list)})
}

// between lists in what two maps differ, by name.
func between(before, now map[string]string) (list []difference) {
	for name, was := range before {
		if is, there := now[name]; is != was || !there {
			list = append(list, difference{name, was, is})
		}
	}
	for name, is := range now {
		if _, there := before[name]; !there {
			list = append(list, difference{name, "", is})
		}
	}
	slices.SortFunc(list, func(a, b difference) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// inputs compares input roots, folder by folder where they differ.
func (c *comparison) inputs(ctx context.Context, blobs Blobs, fn digest.Function, before, now *repb.Digest) {
	type pair struct {
		path        string
		before, now *repb.Digest
	}
	var list []difference
	read := 0
	for open := []pair{{"", before, now}}; len(open) > 0; open = open[1:] {
		p := open[0]
		if digest.Text(p.before) == digest.Text(p.now) {
			continue
		}
		if read += 2; read > maxComparedFolders || len(list) > 10*maxDifferences {
			c.Problem = "There are more inputs that differ."
			break
		}
		x, y := &repb.Directory{}, &repb.Directory{}
		for d, m := range map[*repb.Digest]*repb.Directory{p.before: x, p.now: y} {
			if d == nil {
				continue // there is no such folder in one of them
			}
			of, err := digest.FromProto(fn, d)
			if err == nil && of.SizeBytes() > 0 {
				_, err = readMessage(ctx, blobs, of, maxShownBytes, m)
			}
			if err != nil {
				c.Problem = "Some folders of inputs are not, or no longer, in the storage."
			}
		}
		for _, d := range between(entries(x), entries(y)) {
			d.Name = path.Join(p.path, d.Name)
			list = append(list, d)
		}
		folders := map[string]pair{}
		for _, d := range x.GetDirectories() {
			folders[d.GetName()] = pair{path.Join(p.path, d.GetName()), d.GetDigest(), nil}
		}
		for _, d := range y.GetDirectories() {
			folders[d.GetName()] = pair{path.Join(p.path, d.GetName()), folders[d.GetName()].before, d.GetDigest()}
		}
		for _, f := range folders {
			open = append(open, f)
		}
	}
	slices.SortFunc(list, func(a, b difference) int { return strings.Compare(a.Name, b.Name) })
	c.add("Inputs", list)
}

// entries are the files and links of a folder, with what they are.
func entries(m *repb.Directory) map[string]string {
	all := map[string]string{}
	for _, f := range m.GetFiles() {
		what := digest.Text(f.GetDigest())
		if f.GetIsExecutable() {
			what += ", executable"
		}
		all[f.GetName()] = what
	}
	for _, l := range m.GetSymlinks() {
		all[l.GetName()] = "link to " + l.GetTarget()
	}
	return all
}
