package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/text"
)

// A demo builds a Go module on a private farm, with the whole Go SDK of this machine in the input
// root.
type demo struct {
	module, sdk string
	dir         string // everything that the demo makes
	worker      farm.Worker
}

func demoCommand() *cobra.Command {
	d := &demo{}
	cmd := flags.NewCommand("demo", "build a Go module on a temporary farm",
		"Starts a farm on 127.0.0.1, uploads the Go SDK of this machine and a module, runs\n"+
			"go build there, downloads and runs the program, prints a report and removes everything.",
		d.worker.Settings().Only("Inputs"), func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) })
	cmd.Example = "forerunner demo\nforerunner demo --module src/server --sdk /usr/local/go"
	cmd.Flags().StringVar(&d.module, "module", "testdata/demo", "`folder` of the Go module to build; that of the default is in the source of Forerunner")
	cmd.Flags().StringVar(&d.sdk, "sdk", "", "`folder` of the Go SDK (default: go env GOROOT)")
	return cmd
}

func (d *demo) run(parent context.Context) (err error) {
	if _, err := os.Stat(filepath.Join(d.module, "go.mod")); err != nil {
		return settings.Wrong("--module: %w: give the folder of a Go module, or start this in the source of Forerunner", err)
	}
	if d.sdk == "" {
		// Before the farm has a mount: a process with FUSE mounts does not fork.
		out, err := exec.CommandContext(parent, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("find the Go SDK: %w (give --sdk)", err)
		}
		d.sdk = strings.TrimSpace(string(out))
	}
	if d.dir, err = os.MkdirTemp("", "forerunner-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	logging := flags.Logging{IsWhole: true}
	log, err := logging.NewLogger()
	if err != nil {
		return err
	}
	drain, abort, release := logging.Signals(parent)
	defer release()
	serving, stop := context.WithCancel(drain)
	defer stop()

	fmt.Println("starting a farm: scheduler, storage and one worker on 127.0.0.1")
	l := &localFarm{worker: d.worker, upFlags: upFlags{
		Data: filepath.Join(d.dir, "farm"), CacheSize: "4G", Slots: 1, Together: farm.Together{OneStore: true, DirectCalls: true},
	}}
	l.worker.LogForm = logging.Form()
	l.scheduler.Listen, l.worker.SizeClass = "127.0.0.1:0", 1
	address := make(chan string, 1)
	ended := make(chan error, 1)
	go func() { ended <- l.run(serving, abort, log, func(a string) { address <- a }) }()
	var built string
	var farmErr error
	select {
	case a := <-address:
		built, err = d.build(serving, a)
		stop()
		farmErr = <-ended
	case farmErr = <-ended:
	}
	if err := errors.Join(err, farmErr); err != nil {
		return err
	}
	return runBuilt(parent, built)
}

// runBuilt runs the program that the farm built, now that no mount is left.
func runBuilt(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run the built program: %w: %s", err, bytes.TrimSpace(out))
	}
	fmt.Printf("\nthe program, built on the farm and run here, says:\n")
	for line := range strings.Lines(string(out)) {
		fmt.Print("    ", line)
	}
	return nil
}

// build has the farm at address build the module and returns the program.
func (d *demo) build(ctx context.Context, address string) (string, error) {
	conn, err := dial.Dial(address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Printf("the job: go build of %s, with the SDK in %s as part of the input\n", d.module, d.sdk)
	progress := newProgress(os.Stdout, false)
	defer progress.end()
	inputs, err := client.Scan(ctx, digest.SHA256,
		[]client.Mount{{Prefix: "go", Dir: d.sdk}, {Prefix: "src", Dir: d.module}}, progress.scanned)
	if err != nil {
		return "", fmt.Errorf("read inputs: %w", err)
	}
	outcome, err := client.Execute(ctx, conn, client.Request{
		Function: digest.SHA256, Inputs: inputs, Progress: progress.event,
		Command: client.NewCommand(
			[]string{"/bin/sh", "-c", `export GOROOT="$PWD/go" HOME=/tmp && cd src && exec ../go/bin/go build -o ../out/demo .`},
			[]string{"out/demo"}, "", map[string]string{
				"PATH": "/usr/bin:/bin", "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath -buildvcs=false",
				"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOTELEMETRY": "off",
			}, nil),
	})
	if err != nil {
		return "", err
	}
	progress.end()
	storage := casclient.New(conn, casclient.Options{NoCompression: true})
	if outcome.Status != nil || outcome.Result.GetExitCode() != 0 {
		stderr, _ := client.Output(ctx, storage, digest.SHA256, outcome.Result.GetStderrRaw(), outcome.Result.GetStderrDigest())
		return "", fmt.Errorf("go build failed with exit code %d: %w\n%s", outcome.Result.GetExitCode(),
			errors.Join(outcome.Status), bytes.TrimSpace(stderr))
	}
	if err := client.Download(ctx, storage, digest.SHA256, outcome.Result, filepath.Join(d.dir, "fetched")); err != nil {
		return "", fmt.Errorf("fetch the program: %w", err)
	}
	printTable(inputs, outcome)
	return filepath.Join(d.dir, "fetched", "out", "demo"), nil
}

// printTable prints the size of the job, its usage and the duration of each part.
func printTable(inputs *client.Inputs, outcome *client.Outcome) {
	m := outcome.Result.GetExecutionMetadata()
	used := inputUse(m)
	between := func(from, to *timestamppb.Timestamp) time.Duration {
		return to.AsTime().Sub(from.AsTime()).Round(10 * time.Microsecond)
	}
	share := func(part, whole int64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n\tfiles\tbytes\n")
	fmt.Fprintf(t, "in the input root\t%d\t%s\n", inputs.Files, text.Bytes(inputs.Bytes))
	if used == nil {
		fmt.Fprintf(t, "loaded by the action\tnot known: hard links, all fetched first\n")
	} else {
		fmt.Fprintf(t, "loaded by the action\t%d (%s)\t%s (%s)\n", used.GetFilesRead(), share(used.GetFilesRead(), int64(inputs.Files)),
			text.Bytes(used.GetBytesRead()), share(used.GetBytesRead(), inputs.Bytes))
	}
	fmt.Fprintf(t, "\nstage\ttime\n")
	fmt.Fprintf(t, "read and hash inputs\t%s\n", outcome.Scan.Round(time.Millisecond))
	fmt.Fprintf(t, "upload (%s, %s)\t%s\n", plural.Of(outcome.UploadedBlobs, "blob"), text.Bytes(outcome.UploadedBytes), outcome.Upload.Round(time.Millisecond))
	fmt.Fprintf(t, "queue\t%s\n", between(m.GetQueuedTimestamp(), m.GetWorkerStartTimestamp()))
	fmt.Fprintf(t, "fetch (until the command could start)\t%s\n", between(m.GetWorkerStartTimestamp(), m.GetInputFetchCompletedTimestamp()))
	fmt.Fprintf(t, "run\t%s\n", between(m.GetExecutionStartTimestamp(), m.GetExecutionCompletedTimestamp()))
	fmt.Fprintf(t, "  of it waiting for storage\t%s\n", used.GetStalled().AsDuration().Round(time.Millisecond))
	fmt.Fprintf(t, "report\t%s\n", between(m.GetOutputUploadStartTimestamp(), m.GetWorkerCompletedTimestamp()))
	_ = t.Flush()
}

// inputUse finds our own message among the metadata of a result; nil if there is none.
func inputUse(m *repb.ExecutedActionMetadata) *actionstats.InputRoot {
	for _, packed := range m.GetAuxiliaryMetadata() {
		use := &actionstats.InputRoot{}
		if packed.MessageIs(use) && packed.UnmarshalTo(use) == nil {
			return use
		}
	}
	return nil
}
