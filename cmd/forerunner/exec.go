package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/settings"
)

// defaultPath is where exec's command looks for programs on the worker.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// greetTimeout bounds the first call to the farm.
const greetTimeout = 10 * time.Second

// An execution is the flags of exec.
type execution struct {
	Remote   string      `flag:"remote" group:"Farm" unit:"ADDRESS" default:"127.0.0.1:8980" doc:"Address of the farm, HOST:PORT or grpcs://HOST:PORT"`
	Storage  string      `flag:"storage" unit:"ADDRESS" otherwise:"that of --remote" doc:"Address of external storage, HOST:PORT or grpcs://HOST:PORT"`
	Instance string      `flag:"instance" unit:"NAME" otherwise:"empty" doc:"Instance name"`
	Client   dial.Client `settings:"inline"`

	Inputs           []string          `flag:"input" group:"Command" unit:"PATH" otherwise:"none" doc:"Folder to upload as input root, or PREFIX=FOLDER to place it below a prefix; repeatable"`
	Outputs          []string          `flag:"output" unit:"PATH" otherwise:"none" doc:"Output path to download, relative to the working directory; repeatable"`
	Download         string            `flag:"download" unit:"FOLDER" default:"." doc:"Local folder for outputs"`
	WorkingDirectory string            `flag:"working-directory" unit:"PATH" otherwise:"the input root" doc:"Working directory of the command, a path in the input root"`
	Env              variables         `flag:"env" unit:"NAME=VALUE" otherwise:"PATH=/usr/local/bin:/usr/bin:/bin" doc:"Environment variable of the command; repeatable"`
	Platform         client.Properties `flag:"platform" unit:"NAME=VALUE" otherwise:"none" doc:"Platform property that the worker must have; repeatable, also with one name"`
	Timeout          time.Duration     `flag:"timeout" unit:"TIME" min:"0" otherwise:"the scheduler's" doc:"Timeout of the command"`

	NoCache bool   `flag:"no-cache" group:"Results" doc:"Does not read or write the action cache"`
	Skip    bool   `flag:"skip-cache" doc:"Runs the command even if the result is in the cache"`
	Quiet   bool   `flag:"quiet" doc:"Shows no progress"`
	Live    string `flag:"live" oneof:"auto on off" default:"auto" doc:"Whether output is printed while the command runs: auto is on at a terminal. Output is verified only at the end, and printed again if the action starts over"`
}

// The values of --live.
const (
	liveAuto = "auto"
	liveOn   = "on"
	liveOff  = "off"
)

func execCommand() *cobra.Command {
	e := &execution{}
	cmd := flags.NewCommand("exec [flags] -- CMD [ARG...]", "run one command remotely",
		"Uploads the input folder, runs the command on the farm, prints its\n"+
			"standard output and error, downloads the outputs and exits with its exit code:\n"+
			"124 if it exceeded its timeout, 126 if it cannot be executed, 127 if the program or its interpreter is missing,\n"+
			"2 if a flag is wrong, and 1 if the farm cannot run it.",
		settings.Of(e).Checked(dial.Check, "remote", "storage"), func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return settings.Wrong("no command: give it and its arguments after --")
			}
			ctx, release := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer release()
			return e.run(ctx, args)
		})
	cmd.Args = cobra.ArbitraryArgs
	cmd.Example = "forerunner exec --input src --output hello -- gcc -o hello hello.c\n" +
		"forerunner exec --remote grpcs://farm.example.com:8980 --platform pool=gpu -- nvidia-smi"
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (e *execution) run(ctx context.Context, args []string) error {
	mounts, err := parseMounts(e.Inputs)
	if err != nil {
		return err
	}
	if e.Outputs, err = cleanOutputs(e.WorkingDirectory, e.Outputs); err != nil {
		return err
	}
	if _, ok := e.Env["PATH"]; !ok {
		e.Env = maps.Clone(e.Env)
		if e.Env == nil {
			e.Env = map[string]string{}
		}
		e.Env["PATH"] = defaultPath
	}
	if parent := os.Getenv("TRACEPARENT"); parent != "" { // who traces what starts us
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
	}
	conn, err := e.Client.Dial(e.Remote)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch err := greet(ctx, conn); status.Code(err) {
	case codes.OK:
	case codes.Unauthenticated, codes.PermissionDenied:
		return errors.New(status.Convert(err).Message())
	default:
		return fmt.Errorf("no farm answers at %s: %s", e.Remote, unreachable(status.Convert(err).Message()))
	}
	progress := newProgress(os.Stderr, e.Quiet)
	defer progress.end()
	inputs, err := client.Scan(ctx, digest.SHA256, mounts, progress.scanned)
	if err != nil {
		return fmt.Errorf("read inputs: %w", err)
	}
	progress.inputs(inputs)
	blobs, closeStorage, err := e.openStorage(ctx, conn)
	if err != nil {
		return err
	}
	defer closeStorage()
	request := client.Request{
		Storage: blobs, Instance: e.Instance, Function: digest.SHA256, Inputs: inputs,
		Command: client.NewCommand(args, e.Outputs, e.WorkingDirectory, e.Env, e.Platform),
		Timeout: e.Timeout, DoNotCache: e.NoCache, SkipCacheLookup: e.Skip,
		Progress: progress.event, CancelWithContext: true,
	}
	storage := casclient.New(blobs, casclient.Options{InstanceName: e.Instance})
	ended, err := e.attempt(ctx, conn, storage, request, progress)
	if err == nil && ctx.Err() == nil && errors.Is(ended.fetchErr, cas.ErrNotFound) {
		// As Bazel's cache eviction retries: the storage has lost them since the action ended, or
		// found them damaged just now.
		fmt.Fprintf(os.Stderr, "forerunner: %v; the command runs once more\n", ended.fetchErr)
		request.SkipCacheLookup = true
		ended, err = e.attempt(ctx, conn, storage, request, progress)
	}
	if err != nil {
		return err
	}
	return e.finish(ended)
}

// openStorage returns the connection to the storage, which is the farm's unless the storage is
// elsewhere. That must answer: calls of the upload are repeated for minutes.
func (e *execution) openStorage(ctx context.Context, farm *grpc.ClientConn) (conn *grpc.ClientConn, closeIt func(), err error) {
	if e.Storage == "" {
		return farm, func() {}, nil
	}
	if conn, err = e.Client.Dial(e.Storage); err != nil {
		return nil, nil, fmt.Errorf("--storage: %w", err)
	}
	if err := greet(ctx, conn); status.Code(err) == codes.Unavailable {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("no storage answers at %s (--storage): %s", e.Storage, reason(status.Convert(err).Message()))
	}
	return conn, func() { _ = conn.Close() }, nil
}

// An ended is the outcome of a command.
type ended struct {
	*client.Outcome
	stdout, stderr []byte
	outErr, errErr error // why they are not known
	fetchErr       error // why its outputs, or these, are not here
	shown          printed
}

// attempt runs the command and downloads the outputs.
func (e *execution) attempt(
	ctx context.Context, conn *grpc.ClientConn, storage *casclient.Client, request client.Request, progress *progress,
) (*ended, error) {
	x := &ended{shown: printed{stdout: e.view(progress, "stdout", os.Stdout), stderr: e.view(progress, "stderr", os.Stderr)}}
	request.Stdout, request.Stderr = x.shown.stdout, x.shown.stderr
	var err error
	x.Outcome, err = client.Execute(ctx, conn, request)
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("interrupted; the running action is cancelled")
	}
	if status.Code(err) == codes.Unimplemented && e.Storage == "" {
		return nil, fmt.Errorf("%w (if the storage of the farm is elsewhere, give its address with --storage)", err)
	}
	if err != nil {
		return nil, err
	}
	progress.ended(x.Outcome)
	x.stdout, x.outErr = client.Output(ctx, storage, digest.SHA256, x.Result.GetStdoutRaw(), x.Result.GetStdoutDigest())
	x.stderr, x.errErr = client.Output(ctx, storage, digest.SHA256, x.Result.GetStderrRaw(), x.Result.GetStderrDigest())
	if x.Status == nil {
		x.fetchErr = errors.Join(x.outErr, x.errErr)
	}
	if x.Status == nil && x.fetchErr == nil {
		if err := client.Download(ctx, storage, digest.SHA256, x.Result, e.Download); err != nil {
			x.fetchErr = fmt.Errorf("bring outputs back: %w", err)
		}
	}
	return x, nil
}

// A printed is the output that exec has shown during the run; nil: none.
type printed struct{ stdout, stderr *client.Live }

// view is the destination of a stream during the run. Nil: none. If a program reads our output, it
// gets the output in the result only: a run may start again, and its earlier output would be wrong.
func (e *execution) view(p *progress, stream string, out *os.File) *client.Live {
	if e.Live == liveOff || e.Live == liveAuto && !logline.IsTerminal(out) {
		return nil
	}
	return client.NewLive(afterProgress{p, out}, func() { printStartedOver(stream) })
}

// printStartedOver marks the shown output of a stream as that of an invalid run.
func printStartedOver(stream string) {
	fmt.Fprintf(os.Stderr, "\nthe action was started over: its earlier output does not count; its %s is:\n", stream)
}

// An afterProgress writes to out when the line of progress is out of the way.
type afterProgress struct {
	progress *progress
	out      io.Writer
}

func (a afterProgress) Write(b []byte) (int, error) {
	a.progress.end()
	return a.out.Write(b)
}

// printRest prints the part of a command's output that was not shown during the run, or all of it
// if that run was invalid.
func printRest(out io.Writer, stream string, live *client.Live, final []byte) {
	rest := final
	if live != nil {
		var whole bool
		if rest, whole = live.Rest(final); whole {
			printStartedOver(stream)
		}
	}
	_, _ = out.Write(rest)
}

// greet requests the farm's capabilities, so that a wrong address fails at once and not after
// retries.
func greet(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	_, err := repb.NewCapabilitiesClient(conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{})
	return err
}

// finish prints the rest of the command's output, and turns its exit code into ours.
func (e *execution) finish(x *ended) error {
	if x.outErr == nil {
		printRest(os.Stdout, "standard output", x.shown.stdout, x.stdout)
	}
	if x.errErr == nil {
		printRest(os.Stderr, "standard error", x.shown.stderr, x.stderr)
	}
	if x.Message != "" && !e.Quiet {
		fmt.Fprintln(os.Stderr, printable.Lines(x.Message))
	}
	if x.Status != nil {
		s := status.Convert(x.Status)
		why := strings.TrimSuffix(s.Message(), "\n"+x.Message) // which was printed
		return &exitError{fmt.Errorf("%s (%s)", why, s.Code()), codeOf(s)}
	}
	if x.fetchErr != nil {
		return x.fetchErr
	}
	if missing := missingOutputs(e.Outputs, x.Result); len(missing) > 0 && x.Result.GetExitCode() == 0 {
		return fmt.Errorf("the command did not make %s", strings.Join(missing, ", "))
	}
	if code := x.Result.GetExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// codeOf is the exit code for a command that did not run to its end, as timeout(1) and shells have
// them. Of the worker's messages those count that are about the command: the worker, too, and the
// storage can be too slow, and other arguments can be wrong.
func codeOf(s *status.Status) exitCode {
	timedOut := s.Code() == codes.DeadlineExceeded && strings.HasPrefix(s.Message(), "command ran longer than its timeout")
	notStarted := s.Code() == codes.InvalidArgument && strings.HasPrefix(s.Message(), "exec ")
	switch {
	case timedOut:
		return 124
	case notStarted && (strings.Contains(s.Message(), `": no such file or directory`) ||
		strings.Contains(s.Message(), `": the file is there but not its `)):
		return 127
	case notStarted:
		return 126
	}
	return 1
}

// parseMounts reads DIR and PREFIX=DIR.
func parseMounts(specs []string) ([]client.Mount, error) {
	var mounts []client.Mount
	for _, spec := range specs {
		m := client.Mount{Dir: spec}
		if _, err := os.Stat(spec); err != nil {
			prefix, dir, ok := strings.Cut(spec, "=")
			if !ok {
				return nil, settings.Wrong("--input: %w", err)
			}
			if leaves(prefix) {
				return nil, settings.Wrong("--input: %q is not a path in the input root", prefix)
			}
			m = client.Mount{Prefix: path.Clean(prefix), Dir: dir}
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// cleanOutputs writes paths as in results: users may type a slash at the end, a dot before it, or a
// path twice.
func cleanOutputs(dir string, paths []string) ([]string, error) {
	if leaves(dir) {
		return nil, settings.Wrong("--working-directory: %q is not a path in the input root", dir)
	}
	var clean []string
	for _, p := range paths {
		c := path.Clean(p)
		if path.IsAbs(p) || leaves(path.Join(dir, p)) {
			return nil, settings.Wrong("--output: %q is not a path in the input root", p)
		}
		if c == "." {
			c = "" // REv2 (Command.output_paths): the working directory itself
		}
		if !slices.Contains(clean, c) {
			clean = append(clean, c)
		}
	}
	return clean, nil
}

// leaves reports whether a path leads out of the folder that it begins in.
func leaves(p string) bool {
	p = path.Clean(p)
	return path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../")
}

// missingOutputs lists requested outputs that are not in the result.
func missingOutputs(want []string, result *repb.ActionResult) []string {
	have := map[string]bool{}
	for _, f := range result.GetOutputFiles() {
		have[f.GetPath()] = true
	}
	for _, d := range result.GetOutputDirectories() {
		have[d.GetPath()] = true
	}
	for _, l := range result.GetOutputSymlinks() {
		have[l.GetPath()] = true
	}
	var missing []string
	for _, p := range want {
		if !have[p] {
			missing = append(missing, p)
		}
	}
	return missing
}
