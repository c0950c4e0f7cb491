package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/stored"
)

const (
	// maxShownInputs limits the files and folders of an input root that a page shows.
	maxShownInputs = 50_000
	// trees is the maximum number of input roots that are read and shown at once.
	trees = 1
)

// An actionView is the page of an action: its inputs and its runs.
type actionView struct {
	Digest, Instance string
	Action           *repb.Action
	Command          *repb.Command
	Platform         []*repb.Platform_Property
	Inputs           *inputNode
	// NoInputs is the reason why the page shows no inputs.
	NoInputs string
	// InputsPath is the page of the input root; empty if the action names no input root.
	InputsPath string
	// Last is the last run of the action; nil if no run is known.
	Last *recordRow
	// Compared compares Last with the most similar other run, if the viewer asked for it.
	Compared *compared
	// Known: a profile was found; KnowsLast: the profile has the files of the last run.
	Known, KnowsLast bool
	Sizes            *admin.GetSizesResponse // nil if unknown
	Chart            *charts.Chart

	leave func() // releases the turn of its input root; nil if it has none
}

// end implements lasting.
func (v *actionView) end() {
	if v.leave != nil {
		v.leave()
	}
}

// ComparePath returns the page that explains why the action ran.
func (v *actionView) ComparePath() string {
	return fmt.Sprintf("?%s#compared", url.Values{"instance": {v.Instance}, "compare": {"1"}}.Encode())
}

// An actionPages shows actions.
type actionPages struct {
	scheduler admin.SchedulerServer
	blobs     func(instance string, fn digest.Function) stored.Blobs
	profiles  record.Hints  // nil: profiles are not available
	trees     *intake.Turns // for reading input roots
	records   *recordPages  // shows actions that the storage no longer has
	comparer  *comparer
	shown     int // maximum number of inputs
}

// mayRead reports whether the viewer may see the actions of an instance name, with their commands
// and inputs.
func mayRead(ctx context.Context, instance string) bool {
	return auth.Allowed(ctx, auth.Read, instance) || auth.Allowed(ctx, auth.Observe, "")
}

func (p *actionPages) one(ctx context.Context, r *http.Request) (any, error) {
	d, err := digestOf(r)
	if err != nil {
		return nil, err
	}
	instance := r.FormValue("instance")
	if !mayRead(ctx, instance) {
		return nil, missing("action", digest.ErrNotFound)
	}
	blobs := p.blobs(instance, d.Function())
	v := &actionView{Digest: d.String(), Instance: instance, Action: &repb.Action{}, Command: &repb.Command{}}
	last, _ := p.scheduler.GetRecord(ctx, &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Action{Action: d.String()}})
	if _, err := stored.Message(ctx, blobs, d, stored.MaxBytes, v.Action); err != nil {
		if last != nil { // the storage no longer has the action, but a record does
			return p.records.one(ctx, last, r), nil
		}
		return nil, missing("action", err)
	}
	if last != nil {
		row := rowOf(last)
		v.Last = &row
		if r.FormValue("compare") != "" {
			v.Compared = p.comparer.compare(ctx, last)
		}
	}
	command, err := digest.FromProto(d.Function(), v.Action.GetCommandDigest())
	if err != nil { // a message without fields is one of each type
		return nil, status.Errorf(codes.InvalidArgument, "%s is not a valid Action: command: %v", d, err)
	}
	if _, err = stored.Message(ctx, blobs, command, stored.MaxBytes, v.Command); err != nil {
		return nil, missing("command of this action", err)
	}
	if v.Platform = v.Action.GetPlatform().GetProperties(); v.Action.GetPlatform() == nil {
		//lint:ignore SA1019 clients of API 2.0 send this field
		v.Platform = v.Command.GetPlatform().GetProperties()
	}
	p.sizes(ctx, d, r.FormValue("mnemonic"), v)
	p.inputs(ctx, blobs, d.Function(), v)
	return v, nil
}

// inputs compares the input root with the profile. The page keeps the turn until it is written.
// Errors go to the page.
func (p *actionPages) inputs(ctx context.Context, blobs stored.Blobs, fn digest.Function, v *actionView) {
	root, err := digest.FromProto(fn, v.Action.GetInputRootDigest())
	if err != nil {
		v.NoInputs = err.Error()
		return
	}
	v.InputsPath = folderPath(fn.String(), root.String(), v.Instance, "/", "")
	leave, err := p.trees.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		v.NoInputs = "Too many input roots are being read: try again later."
		return
	}
	defer func() {
		if v.leave == nil {
			leave()
		}
	}()
	directories, err := stored.Tree(ctx, blobs, root)
	if err != nil {
		v.NoInputs = status.Convert(missing("input root, or a part of it", err)).Message()
		return
	}
	known := p.profile(ctx, fn, v)
	tree, err := prefetch.LayOver(known, root, directories, p.shown)
	if err != nil {
		v.NoInputs = fmt.Sprintf("%v: more than %d; use forerunner profile", err, p.shown)
		return
	}
	v.Inputs, v.leave = inputsOf(tree, v.Known), leave
}

// profile returns the files that earlier runs read; empty if unknown.
func (p *actionPages) profile(ctx context.Context, fn digest.Function, v *actionView) prefetch.Record {
	if p.profiles == nil {
		return prefetch.Record{}
	}
	value, err := p.profiles.Get(ctx, record.Key{
		Bucket: names.ProfileBucket, Instance: v.Instance, Digest: digest.OfReduced(fn, v.Action),
	})
	if err != nil {
		return prefetch.Record{}
	}
	known, ok := prefetch.ParseRecord(value)
	v.Known, v.KnowsLast = ok, ok && known.KnowsLast()
	return known
}

// sizes asks the scheduler how the action ran on each size class.
func (p *actionPages) sizes(ctx context.Context, d digest.Digest, mnemonic string, v *actionView) {
	resp, err := p.scheduler.GetSizes(ctx, &admin.GetSizesRequest{
		InstanceName: v.Instance, DigestFunction: d.Function().Proto(), Mnemonic: mnemonic,
		Action: &admin.GetSizesRequest_ActionDigest{ActionDigest: d.Proto()},
	})
	if err != nil {
		return // the scheduler does not learn size classes, or has no workers for the action
	}
	v.Sizes, v.Chart = resp, charts.ChartOf(resp)
}

// An inputNode is a file or folder of an input root. Children with the most unread bytes come
// first.
type inputNode struct {
	*prefetch.Node
	Children []*inputNode
	known    bool // it is known which files were read
}

// Unused returns how much of this file or folder no run has read.
func (n *inputNode) Unused() prefetch.Amount {
	if !n.known {
		return prefetch.Amount{}
	}
	return n.Sums[prefetch.NeverRead]
}

// Read describes whether runs read a file; empty if unknown.
func (n *inputNode) Read() string {
	if !n.known {
		return ""
	}
	return [prefetch.Marks]string{
		prefetch.NeverRead: "never read", prefetch.Foreseen: "read earlier", prefetch.ReadLast: "read",
	}[n.Mark]
}

// Class returns the CSS class for Read.
func (n *inputNode) Class() string { return strings.ReplaceAll(n.Read(), " ", "-") }

func inputsOf(n *prefetch.Node, known bool) *inputNode {
	v := &inputNode{Node: n, known: known}
	for _, child := range n.Children {
		v.Children = append(v.Children, inputsOf(child, known))
	}
	slices.SortStableFunc(v.Children, func(a, b *inputNode) int {
		return cmp.Or(cmp.Compare(b.Unused().Bytes, a.Unused().Bytes), cmp.Compare(b.All().Bytes, a.All().Bytes), cmp.Compare(a.Name, b.Name))
	})
	return v
}
