package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/text"
)

// adminTimeout bounds one call of an operator.
const adminTimeout = 30 * time.Second

// An adminCall is one use of a verb by which an operator talks to a scheduler.
type adminCall struct {
	admin.SchedulerClient
	longrunning longrunningpb.OperationsClient
	conn        *grpc.ClientConn // to remote
	client      *dial.Client     // for other services
	remote      string
	out         io.Writer // takes printable text
	terminal    io.Writer // the destination of out
	json        bool
}

// newAdminCall returns one that makes requests over conn.
func newAdminCall(conn grpc.ClientConnInterface, out io.Writer, asJSON bool) *adminCall {
	conn = printableConn{conn, asJSON}
	return &adminCall{
		SchedulerClient: admin.NewSchedulerClient(conn), longrunning: longrunningpb.NewOperationsClient(conn),
		out: printableWriter{out}, json: asJSON,
	}
}

// A verb is the implementation of a subcommand, with its arguments.
type verb func(ctx context.Context, c *adminCall, args []string) error

// A manual is the --help text of a verb.
type manual struct{ use, short, long, example string }

// readCommand returns a verb that changes nothing, and can be repeated.
func readCommand(m manual, run verb) *cobra.Command {
	w := &watch{}
	cmd := adminCommand(m, func(ctx context.Context, c *adminCall, args []string) error {
		w.terminal, w.plain = logline.IsTerminal(c.terminal), c.json
		return w.run(ctx, c.terminal, func(ctx context.Context, out io.Writer) error {
			once := *c
			once.out = printableWriter{out}
			return explained(run(ctx, &once, args), c.remote)
		})
	})
	w.flags(cmd.Flags())
	return cmd
}

// adminCommand returns a verb.
func adminCommand(m manual, run verb) *cobra.Command {
	var remote string
	var asJSON bool
	var client dial.Client
	cmd := flags.NewCommand(m.use, m.short, m.long, settings.Of(&client), func(cmd *cobra.Command, args []string) error {
		conn, err := client.Dial(remote)
		if err != nil {
			return err
		}
		defer conn.Close()
		c := newAdminCall(conn, cmd.OutOrStdout(), asJSON)
		c.conn, c.client, c.remote, c.terminal = conn, &client, remote, cmd.OutOrStdout()
		return explained(run(cmd.Context(), c, args), remote)
	})
	cmd.Args, cmd.Example = cobra.ArbitraryArgs, m.example
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if err := flags.Load(cmd); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		conn, err := client.Dial(remote)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer conn.Close()
		list, goesOn := newAdminCall(conn, io.Discard, false).complete(cmd.Context(), cmd, args, typed)
		if goesOn {
			return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
	dial.Flag(cmd.Flags(), &remote, "remote", "127.0.0.1:8980", "`address` of the scheduler, HOST:PORT or grpcs://HOST:PORT")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// explained translates the scheduler's error into terms of the command.
func explained(err error, remote string) error {
	switch s := status.Convert(err); s.Code() {
	case codes.OK, codes.Unknown:
		return err
	case codes.Unavailable, codes.DeadlineExceeded:
		return fmt.Errorf("no scheduler answers at %s: %s", remote, unreachable(s.Message()))
	case codes.InvalidArgument: // a pattern, a name or a figure that the user has typed
		return settings.Wrong("%s", printable.Lines(s.Message()))
	case codes.Unimplemented:
		return fmt.Errorf("%s is not a Forerunner scheduler: %s", remote, s.Message())
	default:
		return errors.New(printable.Lines(s.Message()))
	}
}

// A method is one of the scheduler's.
type method[Req, Resp proto.Message] func(context.Context, Req, ...grpc.CallOption) (Resp, error)

// answer calls a method and prints the result: as JSON if requested, otherwise by show.
func answer[Req, Resp proto.Message](
	ctx context.Context, c *adminCall, call method[Req, Resp], req Req, show func(Resp) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	resp, err := call(ctx, req)
	if err != nil {
		return err
	}
	if printed, err := c.print(resp); printed {
		return err
	}
	return show(resp)
}

// print prints a message as JSON, if requested.
func (c *adminCall) print(m proto.Message) (printed bool, err error) {
	if !c.json {
		return false, nil
	}
	b, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return true, err
	}
	return true, printJSON(c.out, json.RawMessage(b)) // protojson's own spaces are at random
}

// printJSON writes any value as JSON, of printable characters.
func printJSON(out io.Writer, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", printable.JSON(b))
	return err
}

// patternOf makes one pattern of all arguments; nil of none.
func patternOf(args []string) (*admin.Pattern, error) {
	if len(args) == 0 {
		return nil, nil
	}
	p, err := pattern.Parse(args...)
	if err != nil {
		return nil, settings.Wrong("%w", err)
	}
	return &admin.Pattern{Attributes: p.Map()}, nil
}

// Examples of patterns, for those who give none.
const exampleOfWorkers, exampleOfOperations = "host=build-*", "target=//slow/*"

// requiredPattern is patternOf for verbs that change something.
func requiredPattern(args []string, example string) (*admin.Pattern, error) {
	p, err := patternOf(args)
	if err == nil && p == nil {
		return nil, settings.Wrong("give a pattern, such as %s", example)
	}
	return p, err
}

// filledPattern is requiredPattern for verbs that do harm: a pattern without a value, as a shell
// makes it of a variable that is not set, could match much. Only the default instance name is
// empty.
func filledPattern(args []string, example string) (*admin.Pattern, error) {
	p, err := requiredPattern(args, example)
	for name, value := range p.GetAttributes() {
		if value == "" && name != "instance" {
			return nil, settings.Wrong("%s= has no value; %s=* matches any", name, name)
		}
	}
	return p, err
}

// dash stands for nothing, so that a table keeps its columns.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func ago(at *timestamppb.Timestamp) string { return dash(text.Ago(at)) }

func shortDigest(s string) string { return dash(text.Short(s)) }

func platformText(list []*admin.Property) string { return dash(text.Platform(list, ",")) }
