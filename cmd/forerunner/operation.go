package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/stored"
	"github.com/forerunner-build/forerunner/web/text"
)

func operationCommand() *cobra.Command {
	var storage string
	cmd := readCommand(manual{
		"operation NAME", "show or cancel one operation",
		"Shows an operation: the worker that runs it or the reason why it waits, its attempts, its size class with the reason\n" +
			"and, for as long as the scheduler keeps records (--keep-records), its stages, resource usage and prefetch statistics,\n" +
			"and declared outputs that the command did not make, if the storage still has the command.\n" +
			"\"forerunner queue operations\" and \"forerunner history\" list the names; you may omit \"operations/\".",
		"forerunner operation 1d3bd6f4-6a2c-4b0e-8d6e-0b4a3a3c5f11",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			name := operationName(args[0])
			told, err := c.operation(ctx, name)
			switch {
			case status.Code(err) == codes.NotFound:
				return c.endedOperation(ctx, name, storage, func() error { return err })
			case err != nil:
				return err
			case c.json:
				return c.printTold(ctx, told, storage)
			case told.response == nil:
				return told.print(c)
			}
			return c.endedOperation(ctx, name, storage, func() error { return told.print(c) })
		})
	storageFlag(cmd, &storage)
	cmd.Args = flags.Arguments
	cmd.AddCommand(operationCancelCommand())
	return cmd
}

// endedOperation shows the record of an operation, or does otherwise if there is none.
func (c *adminCall) endedOperation(ctx context.Context, name, storage string, otherwise func() error) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := c.GetRecord(ctx, recordRequest(name))
	if err != nil {
		return otherwise()
	}
	facts.DropUnknown(r.GetMetadata())
	notMade, err := c.notMade(ctx, r, storage)
	if err != nil {
		return err
	}
	if c.json {
		b, err := protojson.Marshal(r)
		if err != nil {
			return fmt.Errorf("record of %s: %w", name, err)
		}
		all := map[string]any{"record": json.RawMessage(b)}
		if len(notMade) > 0 {
			all[notMadeKey] = notMade
		}
		return printJSON(c.out, all)
	}
	return printRecord(c.out, r, notMade)
}

// notMade returns the declared outputs that the command of an operation did not make. There are none
// if no storage has the command any more. It is an error if the storage that the user names is not
// there.
func (c *adminCall) notMade(ctx context.Context, r *historypb.Record, storage string) ([]string, error) {
	if r.GetOutcome() != historypb.Outcome_SUCCEEDED {
		return nil, nil
	}
	conn, done, err := c.toStorage(storage)
	if err != nil {
		return nil, err
	}
	defer done()
	command, err := stored.Command(ctx, blobsOf(conn), r)
	if status.Code(err) == codes.Unavailable && storage != "" {
		return nil, fmt.Errorf("--storage %s: %v", storage, err)
	}
	if err != nil {
		return nil, nil
	}
	if !c.json {
		clean(command.ProtoReflect()) // as the record is
	}
	return facts.NotMade(r, command), nil
}

// printRecord writes the data of a completed operation, the result and output first, and then what
// was to be made and is not.
func printRecord(out io.Writer, r *historypb.Record, notMade []string) error {
	result := facts.Outcome(r)
	if r.GetError() != "" {
		result += ": " + printable.Name(r.GetError())
	}
	if err := printStreams(out, result, r.GetStderr(), r.GetStdout()); err != nil {
		return err
	}
	if len(notMade) > 0 {
		if _, err := fmt.Fprintf(out, "outputs that the command did not make:\n  %s\n\n", strings.Join(notMade, "\n  ")); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range facts.Of(r).Rows {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Value)
	}
	if len(r.GetArguments()) > 0 {
		line := printable.Name(printable.Command(r.GetArguments()))
		if r.GetArgumentsCut() {
			line += " …"
		}
		fmt.Fprintf(w, "command line\t%s\n", line)
	}
	printTables(w, facts.Told(r.GetMetadata()))
	return w.Flush()
}

// printStreams begins with the result of an operation, and what its command printed, as far as it
// is short: standard error first.
func printStreams(out io.Writer, result string, stderr, stdout *historypb.Stream) error {
	said := "result: " + result + "\n\n"
	for _, s := range []struct {
		name string
		*historypb.Stream
	}{{"standard error", stderr}, {"standard output", stdout}} {
		switch raw := printable.Lines(escapes.ReplaceAllString(string(s.GetRaw()), "")); {
		case s.GetDigest() != "":
			said += s.name + " is in the storage: " + s.GetDigest() + "\n\n"
		case raw != "":
			said += s.name + ":\n" + strings.TrimSuffix(raw, "\n") + "\n\n"
		}
	}
	_, err := io.WriteString(out, said)
	return err
}

func operationCancelCommand() *cobra.Command {
	cmd := adminCommand(manual{
		"cancel NAME...", "cancel operations, as their clients could",
		"Cancels operations. Their clients get CANCELLED, and may retry; \"forerunner queue kill\" gives clients a reason and\n" +
			"keeps them from retrying. A command that runs for these operations alone is stopped.",
		"forerunner operation cancel 1d3bd6f4-6a2c-4b0e-8d6e-0b4a3a3c5f11",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			ctx, cancel := context.WithTimeout(ctx, adminTimeout)
			defer cancel()
			for i, name := range args {
				name = operationName(name)
				if _, err := c.longrunning.CancelOperation(ctx, &longrunningpb.CancelOperationRequest{Name: name}); err != nil {
					return err
				}
				args[i] = name
			}
			if c.json {
				return printJSON(c.out, map[string][]string{"cancelled": args})
			}
			_, err := fmt.Fprintf(c.out, "cancelled: %s\n", strings.Join(args, " "))
			return err
		})
	cmd.Args = flags.Arguments
	return cmd
}

func operationName(s string) string {
	return names.OperationPrefix + strings.TrimPrefix(s, names.OperationPrefix)
}

// A told is the scheduler's data of one operation.
type told struct {
	operation *admin.Operation
	metadata  repb.ExecuteOperationMetadata
	response  *repb.ExecuteResponse // nil: it is not done
}

func (c *adminCall) operation(ctx context.Context, name string) (*told, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	op, err := c.GetOperation(ctx, &admin.GetOperationRequest{Name: name})
	if err != nil {
		return nil, err
	}
	long, err := c.longrunning.GetOperation(ctx, &longrunningpb.GetOperationRequest{Name: name})
	if err != nil {
		return nil, err
	}
	t := &told{operation: op}
	if err := long.GetMetadata().UnmarshalTo(&t.metadata); err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", name, err)
	}
	if long.GetResponse() != nil {
		t.response = &repb.ExecuteResponse{}
		if err := long.GetResponse().UnmarshalTo(t.response); err != nil {
			return nil, fmt.Errorf("response of %s: %w", name, err)
		}
	}
	return t, nil
}

// print writes the data, a line each. It is for operations that have no record, or none yet.
func (t *told) print(c *adminCall) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "stage\t%s\n", strings.ToLower(t.metadata.GetStage().String()))
	for _, f := range facts.Of(t.operation).Rows {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Value)
	}
	if t.response == nil {
		return w.Flush()
	}
	result := t.response.GetResult()
	if s := t.response.GetStatus(); s.GetCode() != 0 {
		fmt.Fprintf(w, "error\t%s: %s\n", codes.Code(s.GetCode()), s.GetMessage())
	} else {
		fmt.Fprintf(w, "exit code\t%d\n", result.GetExitCode())
	}
	if t.response.GetCachedResult() {
		fmt.Fprintln(w, "from the cache\ttrue")
	}
	if worker := result.GetExecutionMetadata().GetWorker(); worker != "" {
		fmt.Fprintf(w, "ran on\t%s\n", text.Machine(worker))
	}
	if m := t.response.GetMessage(); m != "" {
		fmt.Fprintf(w, "message\t%s\n", m)
	}
	printTables(w, facts.Told(result.GetExecutionMetadata()))
	return w.Flush()
}

func printTables(w io.Writer, tables []facts.Table) {
	for _, table := range tables {
		fmt.Fprintf(w, "\n%s\t\n", table.Title)
		for _, f := range table.Rows {
			fmt.Fprintf(w, "  %s\t%s\n", f.Name, f.Value)
		}
	}
}

// printTold writes the messages of an operation as JSON, and what of its outputs was not made. It
// omits packed messages of other workers that are unknown here.
func (c *adminCall) printTold(ctx context.Context, t *told, storage string) error {
	facts.DropUnknown(t.response.GetResult().GetExecutionMetadata())
	all := map[string]any{}
	for name, m := range map[string]proto.Message{
		"operation": t.operation, "metadata": &t.metadata, "response": t.response,
	} {
		b, err := protojson.Marshal(m)
		if err != nil {
			return errors.Join(fmt.Errorf("%s of %s", name, t.operation.GetName()), err)
		}
		all[name] = json.RawMessage(b)
	}
	if t.response != nil {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		if r, err := c.GetRecord(ctx, recordRequest(t.operation.GetName())); err == nil {
			notMade, err := c.notMade(ctx, r, storage)
			if err != nil {
				return err
			}
			if len(notMade) > 0 {
				all[notMadeKey] = notMade
			}
		}
	}
	return printJSON(c.out, all)
}

// notMadeKey is the key of outputs in JSON that were declared and not made.
const notMadeKey = "not_made"

// recordRequest asks for the record of an operation.
func recordRequest(operation string) *admin.GetRecordRequest {
	return &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: operation}}
}
