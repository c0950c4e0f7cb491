package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"text/tabwriter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/text"
)

const (
	maxSuggestActions = 10_000  // that are evaluated
	maxSuggestInput   = 1 << 30 // bytes of text on standard input
)

// anAction is how logs write the digest of one.
var anAction = regexp.MustCompile(`\b[0-9a-f]{64}/[0-9]+\b`)

// actionsOf returns the actions in the arguments; "-" stands for all actions in a text.
func actionsOf(args []string, text io.Reader) (names []string, err error) {
	for _, arg := range args {
		if arg != "-" {
			names = append(names, arg)
			continue
		}
		b, err := io.ReadAll(io.LimitReader(text, maxSuggestInput))
		if err != nil {
			return nil, fmt.Errorf("read names of actions: %w", err)
		}
		names = append(names, anAction.FindAllString(string(b), -1)...)
	}
	return names, nil
}

// suggestions are folders that none of several actions read.
type suggestions struct {
	// Actions is how many actions were evaluated; Unknown others have no profile, or are not in the
	// storage.
	Actions int               `json:"actions"`
	Unknown int               `json:"unknown"`
	Folders []suggestedFolder `json:"folders"`
}

// A suggestedFolder is at the same path in the input roots of Actions of them. Files and Bytes are
// the largest that one of these has there.
type suggestedFolder struct {
	Path    string `json:"path"`
	Actions int    `json:"actions"`
	reportedAmount
}

// printSuggestions evaluates the actions and prints suggestions.
func (v *profileView) printSuggestions(ctx context.Context, actions []string, out io.Writer) error {
	of, err := v.open()
	if err != nil {
		return err
	}
	defer of.close()
	if v.mnemonic != "" {
		c := &adminCall{SchedulerClient: admin.NewSchedulerClient(of.conn)}
		list, err := c.operations(ctx, &admin.Pattern{Attributes: map[string]string{"mnemonic": v.mnemonic}}, maxSuggestActions)
		if err != nil {
			return explained(err, v.remote)
		}
		for _, op := range list.GetOperations() {
			actions = append(actions, op.GetAction())
		}
	}
	slices.Sort(actions)
	if actions = slices.Compact(actions); len(actions) == 0 || len(actions) > maxSuggestActions {
		return settings.Wrong("%d actions are named: give 1 to %d, as arguments, by --mnemonic, or a text behind \"-\"",
			len(actions), maxSuggestActions)
	}
	f, unknown := folders{}, 0
	for _, name := range actions {
		d, ran, err := actionOf(ctx, admin.NewSchedulerClient(of.conn), name)
		if err != nil {
			return explained(err, v.remote)
		}
		tree, err := of.at(cmp.Or(v.instance, ran.GetInstanceName())).treeOf(ctx, d)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if tree == nil {
			unknown++
			continue
		}
		f.add("", tree)
	}
	s := suggestions{Actions: len(actions) - unknown, Unknown: unknown, Folders: f.suggested()}
	if v.json {
		return printJSON(out, s)
	}
	return s.print(out)
}

// treeOf returns the profile of an action on its input tree, nil if it is unknown.
func (f *profileFarm) treeOf(ctx context.Context, d digest.Digest) (*prefetch.Node, error) {
	tree, _, err := f.profiled(ctx, d)
	if errors.Is(err, errNoProfile) || errors.Is(err, cas.ErrNotFound) || status.Code(err) == codes.NotFound {
		return nil, nil
	}
	return tree, err
}

// folders are the known folders by path.
type folders map[string]*folder

type folder struct {
	read    bool // by some action
	actions int
	largest prefetch.Amount
}

// add adds the folders below n. The contents of a folder that no run read are unknown here.
func (f folders) add(dir string, n *prefetch.Node) {
	for _, child := range n.Children {
		if !child.Folder {
			continue
		}
		p := path.Join(dir, child.Name)
		at := f[p]
		if at == nil {
			at = &folder{}
			f[p] = at
		}
		at.actions++
		at.read = at.read || child.Mark != prefetch.NeverRead
		if all := child.All(); all.Bytes > at.largest.Bytes || all.Files > at.largest.Files {
			at.largest = all
		}
		f.add(p, child)
	}
}

// suggested returns the folders that no action read, but not those in them, the largest first.
func (f folders) suggested() []suggestedFolder {
	list := []suggestedFolder{}
	for p, at := range f {
		above := f[path.Dir(p)]
		if at.read || at.largest.Files == 0 || above != nil && !above.read {
			continue
		}
		list = append(list, suggestedFolder{p, at.actions, reportedAmount(at.largest)})
	}
	slices.SortFunc(list, func(a, b suggestedFolder) int {
		return cmp.Or(-cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Path, b.Path))
	})
	return list
}

func (s suggestions) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BYTES\tFILES\tACTIONS\tFOLDER")
	for _, f := range s.Folders {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", text.Bytes(f.Bytes), f.Files, f.Actions, f.Path)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s %s compared; %d more have no profile\n",
		plural.Of(s.Actions, "action"), plural.Choose(s.Actions, "was", "were"), s.Unknown)
	return err
}
