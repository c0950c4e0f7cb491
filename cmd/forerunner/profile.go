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
	"github.com/forerunner-build/forerunner/web/text"
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
	tree, err := prefetch.LayOver(record, root, directories, maxShownFiles)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	printProfiled(w, tree, record, v.unused)
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
			"worker whose --state is here")
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

// A profiledLine is a file, or a folder of which nothing was read.
type profiledLine struct {
	path string
	node *prefetch.Node
}

// profiledLines lists what is below n, in the order of the tree.
func profiledLines(lines []profiledLine, dir string, n *prefetch.Node) []profiledLine {
	for _, child := range n.Children {
		p := path.Join(dir, child.Name)
		if child.Folder && child.Mark != prefetch.NeverRead {
			lines = profiledLines(lines, p, child)
		} else {
			lines = append(lines, profiledLine{p, child})
		}
	}
	return lines
}

// marks are how they are printed.
var marks = [prefetch.Marks]string{prefetch.NeverRead: "-", prefetch.Foreseen: "~", prefetch.ReadLast: "+"}

// printProfiled writes a line for each path, and sums.
func printProfiled(w io.Writer, root *prefetch.Node, r prefetch.Record, unused bool) {
	lines := profiledLines(nil, "", root)
	if unused {
		lines = slices.DeleteFunc(lines, func(l profiledLine) bool { return l.node.Mark != prefetch.NeverRead })
		slices.SortStableFunc(lines, func(a, b profiledLine) int {
			return -cmp.Compare(a.node.All().Bytes, b.node.All().Bytes)
		})
	}
	for _, l := range lines {
		all, count := l.node.All(), ""
		if l.node.Folder {
			count = fmt.Sprintf("/  (%d files)", all.Files)
		}
		fmt.Fprintf(w, "%s %10s  %s%s\n", marks[l.node.Mark], text.Bytes(all.Bytes), l.path, count)
	}
	if !r.KnowsLast() {
		fmt.Fprintln(w, "what the last run read is not known here: the store has filters only")
	}
	all := root.All()
	for _, sum := range []struct {
		mark prefetch.Mark
		what string
	}{
		{prefetch.ReadLast, "read by the last run"},
		{prefetch.Foreseen, "foreseen, too"},
		{prefetch.NeverRead, "never read"},
	} {
		n := root.Sums[sum.mark]
		fmt.Fprintf(w, "%s %d of %d files, %s of %s: %s\n", marks[sum.mark],
			n.Files, all.Files, text.Bytes(n.Bytes), text.Bytes(all.Bytes), sum.what)
	}
}
