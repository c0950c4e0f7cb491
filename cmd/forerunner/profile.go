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
}

func profileCommand() *cobra.Command {
	v := &profileView{}
	cmd := farm.NewCommand("profile [flags] ACTION", "show which inputs of an action are read",
		"Prints the input root of an action, given as HASH/SIZE, with a mark for each path: \"+\" is\n"+
			"foreseen to be read the next time, \"-\" was not read by the last runs of its command. A folder\n"+
			"of which nothing was read is one line. One unread file in a thousand is marked \"+\" by mistake.",
		func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give one action as HASH/SIZE: worker and scheduler name it in their logs")
			}
			return v.run(cmd.Context(), args[0], cmd.OutOrStdout())
		})
	cmd.Args = cobra.ArbitraryArgs
	f := cmd.Flags()
	f.StringVar(&v.remote, "remote", "127.0.0.1:8980", "`address` of the farm, HOST:PORT")
	f.StringVar(&v.profiles, "profiles", "", "`address` of the FileSystemAccessCache, HOST:PORT (default that of --remote)")
	f.StringVar(&v.instance, "instance", "", "instance `name`")
	f.BoolVar(&v.unused, "unused", false, "list only what was not read, the largest first")
	return cmd
}

func (v *profileView) run(ctx context.Context, name string, out io.Writer) error {
	d, err := parseDigest(name)
	if err != nil {
		return err
	}
	conn, err := farm.Dial(strings.TrimPrefix(v.remote, "grpc://"))
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
	profile, err := v.profileOf(ctx, conn, &action)
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
	t, err := newProfiledTree(profile, root, directories)
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

// profileOf asks for what former runs of the action's command have read.
func (v *profileView) profileOf(ctx context.Context, conn *grpc.ClientConn, a *repb.Action) (*prefetch.Profile, error) {
	if v.profiles != "" {
		other, err := farm.Dial(strings.TrimPrefix(v.profiles, "grpc://"))
		if err != nil {
			return nil, err
		}
		defer other.Close()
		conn = other
	}
	m, err := fsac.NewFileSystemAccessCacheClient(conn).GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
		InstanceName: v.instance, DigestFunction: repb.DigestFunction_SHA256,
		ReducedActionDigest: prefetch.ReducedDigest(digest.SHA256, a).Proto(),
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		return nil, errors.New("nothing is known of what this action reads: no run of its command has succeeded on a " +
			"worker whose --profiles is here")
	case codes.Unimplemented:
		return nil, errors.New("no profiles are kept at this address: give that of the scheduler, or --profiles")
	default:
		return nil, fmt.Errorf("ask for the profile: %w", err)
	}
	p, ok := prefetch.ParseProfile(m)
	if !ok {
		return nil, errors.New("the profile is malformed")
	}
	return p, nil
}

// A profiledTree is an input root over which a profile was laid.
type profiledTree struct {
	lines []profiledLine // in order of the tree
	all   amount
	read  amount
}

type amount struct{ files, bytes int64 }

// A profiledLine is a file, or a folder of which nothing was read.
type profiledLine struct {
	path string
	read bool
	amount
}

func newProfiledTree(p *prefetch.Profile, root digest.Digest, list []*repb.Directory) (*profiledTree, error) {
	b := &treeBuilder{profile: p, directories: map[string]*repb.Directory{}, tree: &profiledTree{}}
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
	profile     *prefetch.Profile
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
		sum.files, sum.bytes = sum.files+1, sum.bytes+one.bytes
		if read {
			b.line(path.Join(dir, f.GetName()), b.profile.Contains(h.Child(f.GetName())), one)
		}
	}
	for _, child := range m.GetDirectories() {
		p, childHash := path.Join(dir, child.GetName()), h.Child(child.GetName())
		// What is below a folder that was not read was not read.
		childRead := read && b.profile.Contains(childHash)
		below := b.add(p, childHash, child.GetDigest(), childRead)
		sum.files, sum.bytes = sum.files+below.files, sum.bytes+below.bytes
		if read && !childRead {
			b.line(p+"/", false, below)
		}
	}
	return sum
}

func (b *treeBuilder) line(p string, read bool, n amount) {
	t := b.tree
	t.lines = append(t.lines, profiledLine{p, read, n})
	t.all.files, t.all.bytes = t.all.files+n.files, t.all.bytes+n.bytes
	if read {
		t.read.files, t.read.bytes = t.read.files+n.files, t.read.bytes+n.bytes
	}
}

// print writes a line for each path, and a sum.
func (t *profiledTree) print(w io.Writer, unused bool) {
	lines := t.lines
	if unused {
		lines = slices.DeleteFunc(slices.Clone(lines), func(l profiledLine) bool { return l.read })
		slices.SortStableFunc(lines, func(a, b profiledLine) int { return -cmp.Compare(a.bytes, b.bytes) })
	}
	for _, l := range lines {
		mark := "-"
		if l.read {
			mark = "+"
		}
		count := ""
		if strings.HasSuffix(l.path, "/") {
			count = fmt.Sprintf("  (%d files)", l.files)
		}
		fmt.Fprintf(w, "%s %10s  %s%s\n", mark, bytesText(l.bytes), l.path, count)
	}
	fmt.Fprintf(w, "foreseen: %d of %d files, %s of %s\n",
		t.read.files, t.all.files, bytesText(t.read.bytes), bytesText(t.all.bytes))
}
