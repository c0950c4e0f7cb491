package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cmd/farm"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/fsac"
)

// maxShownFiles bounds the input root that is laid out: one directory can be in a
// tree more often than anybody could read.
const maxShownFiles = 1 << 20

// A profileView is what the flags of profile say.
type profileView struct {
	remote, profiles, instance string
	unused                     bool
	client                     farm.Client
}

func profileCommand() *cobra.Command {
	v := &profileView{}
	cmd := farm.NewCommand("profile [flags] ACTION", "show which inputs of an action are read",
		"Prints the input root of an action, given as HASH/SIZE, with a mark for each file: \"+\" was read by\n"+
			"the last run of its command, \"~\" by one of those before and is fetched ahead of the next one, too,\n"+
			"\"-\" by none of them. A folder of which nothing was read is one line. Of a thousand files that were\n"+
			"never read, one is marked \"~\" by mistake.",
		func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give one action as HASH/SIZE: worker and scheduler name it in their logs")
			}
			return v.run(cmd.Context(), args[0], cmd.OutOrStdout())
		})
	cmd.Args = cobra.ArbitraryArgs
	f := cmd.Flags()
	f.StringVar(&v.remote, "remote", "127.0.0.1:8980", "`address` of the farm, HOST:PORT or grpcs://HOST:PORT")
	f.StringVar(&v.profiles, "profiles", "", "`address` of the FileSystemAccessCache, HOST:PORT or grpcs://HOST:PORT (default that of --remote)")
	f.StringVar(&v.instance, "instance", "", "instance `name`")
	v.client.Flags(f)
	f.BoolVar(&v.unused, "unused", false, "list only what none of the last runs read, the largest first")
	return cmd
}

func (v *profileView) run(ctx context.Context, name string, out io.Writer) error {
	d, err := parseDigest(name)
	if err != nil {
		return err
	}
	conn, err := v.client.Dial(v.remote)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cas.NewClient(conn, cas.ClientOptions{InstanceName: v.instance})
	raw, err := client.Read(ctx, d)
	if err != nil {
		return fmt.Errorf("read action: %w", err)
	}
	var action repb.Action
	if err := proto.Unmarshal(raw, &action); err != nil {
		return fmt.Errorf("%s is no action: %w", name, err)
	}
	record, err := v.recordOf(ctx, conn, &action)
	if err != nil {
		return err
	}
	root, err := digest.FromProto(digest.SHA256, action.GetInputRootDigest())
	if err != nil {
		return fmt.Errorf("input root: %w", err)
	}
	directories, err := client.GetTree(ctx, root)
	if err != nil {
		return fmt.Errorf("read input root: %w", err)
	}
	t, err := newProfiledTree(record, root, directories)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	t.print(w, v.unused)
	return w.Flush()
}

func parseDigest(s string) (digest.Digest, error) {
	hash, size, _ := strings.Cut(s, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return digest.Digest{}, fmt.Errorf("action %q is not of the form HASH/SIZE", s)
	}
	return digest.Parse(digest.SHA256, hash, n)
}

// recordOf asks for what former runs of the action's command have read.
func (v *profileView) recordOf(
	ctx context.Context, conn *grpc.ClientConn, a *repb.Action,
) (r prefetch.Record, err error) {
	if v.profiles != "" {
		other, err := v.client.Dial(v.profiles)
		if err != nil {
			return r, err
		}
		defer other.Close()
		conn = other
	}
	m, err := fsac.NewFileSystemAccessCacheClient(conn).GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
		InstanceName: v.instance, DigestFunction: repb.DigestFunction_SHA256,
		ReducedActionDigest: digest.OfReduced(digest.SHA256, a).Proto(),
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		return r, errors.New("nothing is known of what this action reads: no run of its command has succeeded on a " +
			"worker whose --profiles is here")
	case codes.Unimplemented:
		return r, errors.New("no profiles are kept at this address: give that of the scheduler, or --profiles")
	default:
		return r, fmt.Errorf("ask for the profile: %w", err)
	}
	// The history of a record is a field that this message does not have, and keeps.
	value, err := proto.Marshal(m)
	if err != nil {
		return r, fmt.Errorf("profile: %w", err)
	}
	r, ok := prefetch.ParseRecord(value)
	if !ok {
		return r, errors.New("the profile is malformed")
	}
	return r, nil
}

// A profiledTree is an input root over which a profile was laid.
type profiledTree struct {
	lines     []profiledLine // in order of the tree
	all       amount
	sums      [marks]amount
	knowsLast bool
}

type amount struct{ files, bytes int64 }

func (a *amount) add(o amount) { a.files, a.bytes = a.files+o.files, a.bytes+o.bytes }

// A mark says who read a path.
type mark int

// The marks.
const (
	neverRead mark = iota
	foreseen       // by a run before the last one, or nobody knows by which
	readLast
	marks
)

func (m mark) String() string { return [...]string{"-", "~", "+"}[m] }

// A profiledLine is a file, or a folder of which nothing was read.
type profiledLine struct {
	path string
	mark mark
	amount
}

func newProfiledTree(r prefetch.Record, root digest.Digest, list []*repb.Directory) (*profiledTree, error) {
	b := &treeBuilder{
		record: r, directories: map[string]*repb.Directory{}, tree: &profiledTree{knowsLast: r.KnowsLast()},
	}
	for _, m := range list {
		d, _, err := digest.OfMessage(digest.SHA256, m)
		if err != nil {
			return nil, fmt.Errorf("input root: %w", err)
		}
		b.directories[d.String()] = m
	}
	b.add("", prefetch.RootHash, root.Proto(), true)
	if b.files > maxShownFiles {
		return nil, fmt.Errorf("input root has more than %d files and folders", maxShownFiles)
	}
	return b.tree, nil
}

type treeBuilder struct {
	record      prefetch.Record
	directories map[string]*repb.Directory
	tree        *profiledTree
	files       int
}

// add adds what is below the directory d at dir. It returns how much that is; what
// was not read at all is left for the caller to write as one line.
func (b *treeBuilder) add(dir string, h prefetch.PathHash, d *repb.Digest, read bool) amount {
	var sum amount
	if b.files++; b.files > maxShownFiles {
		return sum
	}
	m := b.directories[fmt.Sprintf("%s/%d", d.GetHash(), d.GetSizeBytes())]
	for _, f := range m.GetFiles() {
		if b.files++; b.files > maxShownFiles {
			return sum
		}
		one := amount{1, f.GetDigest().GetSizeBytes()}
		sum.add(one)
		if read {
			b.line(path.Join(dir, f.GetName()), b.mark(h.Child(f.GetName())), one)
		}
	}
	for _, child := range m.GetDirectories() {
		p, childHash := path.Join(dir, child.GetName()), h.Child(child.GetName())
		// What is below a folder that was not read was not read.
		childRead := read && b.mark(childHash) != neverRead
		below := b.add(p, childHash, child.GetDigest(), childRead)
		sum.add(below)
		if read && !childRead {
			b.line(p+"/", neverRead, below)
		}
	}
	return sum
}

// mark says who read the path of that hash.
func (b *treeBuilder) mark(h prefetch.PathHash) mark {
	switch {
	case b.record.ReadLast(h):
		return readLast
	case b.record.Profile.Contains(h):
		return foreseen
	}
	return neverRead
}

func (b *treeBuilder) line(p string, m mark, n amount) {
	t := b.tree
	t.lines = append(t.lines, profiledLine{p, m, n})
	t.all.add(n)
	t.sums[m].add(n)
}

// print writes a line for each path, and sums.
func (t *profiledTree) print(w io.Writer, unused bool) {
	lines := t.lines
	if unused {
		lines = slices.DeleteFunc(slices.Clone(lines), func(l profiledLine) bool { return l.mark != neverRead })
		slices.SortStableFunc(lines, func(a, b profiledLine) int { return -cmp.Compare(a.bytes, b.bytes) })
	}
	for _, l := range lines {
		count := ""
		if strings.HasSuffix(l.path, "/") {
			count = fmt.Sprintf("  (%d files)", l.files)
		}
		fmt.Fprintf(w, "%s %10s  %s%s\n", l.mark, bytesText(l.bytes), l.path, count)
	}
	if !t.knowsLast {
		fmt.Fprintln(w, "what the last run read is not known here: the store has filters only")
	}
	for _, sum := range []struct {
		mark mark
		what string
	}{{readLast, "read by the last run"}, {foreseen, "foreseen, too"}, {neverRead, "never read"}} {
		n := t.sums[sum.mark]
		fmt.Fprintf(w, "%s %d of %d files, %s of %s: %s\n", sum.mark,
			n.files, t.all.files, bytesText(n.bytes), bytesText(t.all.bytes), sum.what)
	}
}
