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

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/settings"
)

// maxShownFiles bounds the input root that is laid out: one directory can be in a
// tree more often than anybody could read.
const maxShownFiles = 1 << 20

// A profileView is the flags of profile.
type profileView struct {
	remote, profiles, instance, mnemonic string
	tree, suggest, json                  bool
	client                               dial.Client
	watch                                watch
}

func profileCommand() *cobra.Command {
	v := &profileView{}
	cmd := flags.NewCommand("profile [flags] ACTION...", "show inputs of actions that no run read",
		"Lists the inputs of an action that none of the last runs of its command read: files and unread\n"+
			"folders, the largest first. With --tree it prints the whole input root, with a\n"+
			"mark for each file: \"+\" was read by the last run, \"~\" by an earlier one and is prefetched for the\n"+
			"next one, too, \"-\" by none of them. One unread file in a thousand is marked \"~\" by mistake.\n\n"+
			actionNames+"\n\n"+
			"With --suggest it compares many actions, and lists the folders that none of them read:\n"+
			"you may be able to remove these from the inputs of a rule. The actions are the arguments, each\n"+
			"HASH/SIZE in the text on standard input if the argument is \"-\" (such as lines of the scheduler's log), and with\n"+
			"--mnemonic the queued and running ones. Actions without a profile are skipped and counted.",
		settings.Of(&v.client), func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			v.watch.terminal, v.watch.plain = logline.IsTerminal(out), v.json
			if v.suggest {
				actions, err := actionsOf(args, cmd.InOrStdin())
				if err != nil {
					return err
				}
				return v.watch.run(cmd.Context(), out, func(ctx context.Context, out io.Writer) error {
					return v.printSuggestions(ctx, actions, out)
				})
			}
			if len(args) != 1 {
				return settings.Wrong(nameAction)
			}
			return v.watch.run(cmd.Context(), out, func(ctx context.Context, out io.Writer) error {
				return v.print(ctx, args[0], out)
			})
		})
	cmd.Args = cobra.ArbitraryArgs
	cmd.Example = "forerunner profile --tree 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08/142\n" +
		"forerunner profile 9f86d081884c\n" +
		"forerunner profile --suggest --mnemonic GoCompile"
	f := cmd.Flags()
	dial.Flag(f, &v.remote, "remote", "127.0.0.1:8980", "`address` of the farm, HOST:PORT or grpcs://HOST:PORT")
	dial.Flag(f, &v.profiles, "profiles", "", "`address` of the FileSystemAccessCache, HOST:PORT or grpcs://HOST:PORT (default that of --remote)")
	f.StringVar(&v.instance, "instance", "", "instance `name` (default that of the run, if its record was found)")
	f.BoolVar(&v.tree, "tree", false, "print the whole input root with a mark for each file")
	f.BoolVar(&v.suggest, "suggest", false, "list folders that none of many actions read")
	f.StringVar(&v.mnemonic, "mnemonic", "", "with --suggest: also queued and running actions of this `mnemonic`")
	f.BoolVar(&v.json, "json", false, "print JSON")
	v.watch.flags(f)
	return cmd
}

// print prints the inputs of one action.
func (v *profileView) print(ctx context.Context, name string, out io.Writer) error {
	of, err := v.open()
	if err != nil {
		return err
	}
	defer of.close()
	d, ran, err := actionOf(ctx, admin.NewSchedulerClient(of.conn), name)
	if err != nil {
		return explained(err, v.remote)
	}
	of = of.at(cmp.Or(v.instance, ran.GetInstanceName()))
	tree, record, err := of.profiled(ctx, d)
	if err != nil {
		return err
	}
	lines := profiledLines(nil, "", tree)
	if !v.tree {
		lines = unused(lines)
	}
	if v.json {
		return printJSON(out, reportOf(lines, tree, record))
	}
	w := bufio.NewWriter(out)
	printProfiled(w, lines, tree, record)
	return w.Flush()
}

// A profileFarm is the farm with actions and their profiles.
type profileFarm struct {
	instance       string
	conn, profiles *grpc.ClientConn
	blobs          *casclient.Client
}

func (v *profileView) open() (*profileFarm, error) {
	conn, err := v.client.Dial(v.remote)
	if err != nil {
		return nil, err
	}
	f := (&profileFarm{conn: conn, profiles: conn}).at(v.instance)
	if v.profiles != "" {
		if f.profiles, err = v.client.Dial(v.profiles); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return f, nil
}

// at returns the same farm with the actions of an instance name.
func (f *profileFarm) at(instance string) *profileFarm {
	return &profileFarm{
		instance: instance, conn: f.conn, profiles: f.profiles,
		blobs: casclient.New(f.conn, casclient.Options{InstanceName: instance}),
	}
}

func (f *profileFarm) close() {
	_ = f.conn.Close()
	if f.profiles != f.conn {
		_ = f.profiles.Close()
	}
}

// errNoProfile says that an action has no profile.
var errNoProfile = errors.New("there is no profile of this action: no run of its command has succeeded on a " +
	"worker whose --state is here")

// profiled applies the profile of an action to its input root.
func (f *profileFarm) profiled(ctx context.Context, d digest.Digest) (*prefetch.Node, prefetch.Record, error) {
	var none prefetch.Record
	raw, err := f.blobs.Read(ctx, d)
	if err != nil {
		return nil, none, fmt.Errorf("read action: %w", err)
	}
	var action repb.Action
	if err := proto.Unmarshal(raw, &action); err != nil {
		return nil, none, fmt.Errorf("%s is not an action: %w", d, err)
	}
	record, err := f.recordOf(ctx, &action)
	if err != nil {
		return nil, none, err
	}
	root, err := digest.FromProto(digest.SHA256, action.GetInputRootDigest())
	if err != nil {
		return nil, none, fmt.Errorf("input root: %w", err)
	}
	directories, err := f.blobs.GetTree(ctx, root)
	if err != nil {
		return nil, none, fmt.Errorf("read input root: %w", err)
	}
	tree, err := prefetch.LayOver(record, root, directories, maxShownFiles)
	return tree, record, err
}

func parseDigest(s string) (digest.Digest, error) {
	hash, size, _ := strings.Cut(s, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return digest.Digest{}, settings.Wrong("action %q is not of the form HASH/SIZE", s)
	}
	d, err := digest.Parse(digest.SHA256, hash, n)
	if err != nil {
		return d, settings.Wrong("action %q: %w", s, err)
	}
	return d, nil
}

// recordOf requests the reads of earlier runs of the action's command.
func (f *profileFarm) recordOf(ctx context.Context, a *repb.Action) (r prefetch.Record, err error) {
	m, err := fsac.NewFileSystemAccessCacheClient(f.profiles).GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
		InstanceName: f.instance, DigestFunction: repb.DigestFunction_SHA256,
		ReducedActionDigest: digest.OfReduced(digest.SHA256, a).Proto(),
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		return r, errNoProfile
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

// profiledLines lists everything below n, in the order of the tree.
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

// unused keeps files that were never read, the largest first.
func unused(lines []profiledLine) []profiledLine {
	lines = slices.DeleteFunc(lines, func(l profiledLine) bool { return l.node.Mark != prefetch.NeverRead })
	slices.SortStableFunc(lines, func(a, b profiledLine) int {
		return -cmp.Compare(a.node.All().Bytes, b.node.All().Bytes)
	})
	return lines
}
