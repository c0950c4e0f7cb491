package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/fsac"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/comparison"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/stored"
	"github.com/forerunner-build/forerunner/web/text"
)

// explainPatience is for how long storage that does not answer is asked again.
const explainPatience = 5 * time.Second

func explainCommand() *cobra.Command {
	var storage string
	cmd := adminCommand(manual{
		"explain [flags] ACTION", "say why an action ran and was not in the cache",
		"Says why an action ran: the client does not allow caching, the same action failed before, or it differs from the most similar\n" +
			"run of the same target. Compares command line, environment, platform, timeout, salt and the rest of the action,\n" +
			"and both input trees. For each input that differs it says whether runs of the command read it.\n\n" +
			actionNames + " The scheduler must have a record of it (--keep-records), and\n" +
			"the storage must have both actions.",
		"forerunner explain 8a14ba2ca9b0c0e1d1b0f8bd2b0e5e0b3f5a8f7c4d9f4b3e2a1c0d9e8f7a6b5c/142\n" +
			"forerunner explain --json 1d3bd6f4-6a2c-4b0e-8d6e-0b4a3a3c5f11",
	}, func(ctx context.Context, c *adminCall, args []string) error {
		if len(args) != 1 {
			return settings.Wrong(nameAction)
		}
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		return c.explain(ctx, args[0], storage)
	})
	storageFlag(cmd, &storage)
	return cmd
}

// storageFlag adds the flag for the storage of actions.
func storageFlag(cmd *cobra.Command, storage *string) {
	dial.Flag(cmd.Flags(), storage, "storage", "", "`address` of the storage, HOST:PORT or grpcs://HOST:PORT (default that of --remote)")
}

// toStorage returns a connection to the storage at an address, or else of the scheduler. The caller
// calls done when it no longer uses the connection.
func (c *adminCall) toStorage(address string) (conn *grpc.ClientConn, done func(), err error) {
	if address == "" {
		return c.conn, func() {}, nil
	}
	if conn, err = c.client.Dial(address); err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// blobsOf returns the blobs of instance names in a storage.
func blobsOf(conn *grpc.ClientConn) func(instance string, fn digest.Function) stored.Blobs {
	return func(instance string, fn digest.Function) stored.Blobs {
		return casclient.New(conn, casclient.Options{InstanceName: instance, Function: fn, RetryFor: explainPatience})
	}
}

// explain prints why an action, or the operation of a name, ran.
func (c *adminCall) explain(ctx context.Context, name, storage string) error {
	c.SchedulerClient = admin.NewSchedulerClient(c.conn) // answers are used in further requests: they are cleaned only when printed
	r, err := recordOf(ctx, c.SchedulerClient, name)
	if err != nil {
		return err
	}
	conn, done, err := c.toStorage(storage)
	if err != nil {
		return err
	}
	defer done()
	from := comparison.Source{
		Records: func(ctx context.Context, req *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error) {
			return c.ListRecords(ctx, req)
		},
		Blobs: blobsOf(conn),
		Profile: func(ctx context.Context, instance string, reduced digest.Digest) ([]byte, error) {
			return profileOf(ctx, c.conn, instance, reduced)
		},
	}
	e := from.Explain(ctx, r)
	if storage == "" && strings.Contains(e.Problem, unknownService) {
		e.Problem = fmt.Sprintf("%s has no storage: give its address with --storage.", c.remote)
	}
	if c.json {
		return c.printExplanationJSON(r, e)
	}
	return c.printExplanation(r, e)
}

// unknownService is part of a server's error for services that it lacks.
const unknownService = "no such method"

// profileOf returns the scheduler's record of the reads of an action.
func profileOf(ctx context.Context, conn *grpc.ClientConn, instance string, reduced digest.Digest) ([]byte, error) {
	m, err := fsac.NewFileSystemAccessCacheClient(conn).GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
		InstanceName: instance, DigestFunction: reduced.Function().Proto(), ReducedActionDigest: reduced.Proto(),
	})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m) // with the history, which this message does not have, and keeps
}

func (c *adminCall) printExplanationJSON(r *historypb.Record, e *comparison.Explanation) error {
	runs := map[string]json.RawMessage{}
	for name, m := range map[string]*historypb.Record{"run": r, "compared_with": e.Other} {
		if m == nil {
			continue
		}
		facts.DropUnknown(m.GetMetadata())
		b, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		runs[name] = b
	}
	return printJSON(c.out, struct {
		Run   json.RawMessage `json:"run"`
		Other json.RawMessage `json:"compared_with,omitempty"`
		*comparison.Explanation
	}{runs["run"], runs["compared_with"], e})
}

func (c *adminCall) printExplanation(r *historypb.Record, e *comparison.Explanation) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	line := func(title string, r *historypb.Record) {
		clean(r.ProtoReflect())
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", title, r.GetOperation(), r.GetEnded().AsTime().UTC().Format(time.RFC3339),
			facts.Outcome(r), dash(strings.TrimSpace(r.GetTarget()+" "+r.GetMnemonic())), shortDigest(r.GetAction()))
	}
	line("run", r)
	if e.Other != nil {
		line("compared with", e.Other)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	for _, s := range e.Reasons {
		fmt.Fprintln(c.out, printable.Name(s))
	}
	if e.Problem != "" {
		fmt.Fprintln(c.out, printable.Name(e.Problem))
	}
	for _, k := range e.Kinds {
		last := ""
		if k.IsInputs() {
			last = "\tREAD"
		}
		fmt.Fprintf(w, "\n%s\tOTHER RUN\tTHIS RUN%s\n", strings.ToUpper(k.Name), last)
		for _, d := range k.List {
			name, other, this := printable.Name(d.Name), printable.Name(d.Other), printable.Name(d.This)
			if k.IsInputs() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, dash(shortInput(other)), dash(shortInput(this)), dash(string(d.Read)))
			} else {
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, dash(other), dash(this))
			}
		}
		if k.More > 0 {
			fmt.Fprintf(w, "and %d more\n", k.More)
		}
	}
	return w.Flush()
}

// shortInput formats an input with a short digest.
func shortInput(s string) string {
	words := strings.Fields(s)
	for i, word := range words {
		if hash, rest, ok := strings.Cut(word, "/"); ok && len(hash) == 2*digest.HashSize {
			words[i] = text.Short(hash) + "/" + rest
		}
	}
	return strings.Join(words, " ")
}
