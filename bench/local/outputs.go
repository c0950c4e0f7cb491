package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/farm/dial"
)

// measureOutputs takes all samples of a large output.
func (b *localBench) measureOutputs(ctx context.Context) error {
	if !b.o.Wants(rowOutput) {
		return nil
	}
	for run := range b.o.Runs {
		for _, folder := range turn(b.o.folders(), run) {
			written, err := b.output(ctx, folder)
			if err != nil {
				return fmt.Errorf("a large output: %w", err)
			}
			report.Progress("run %d of %d, output, %s: %.2f bytes written for each", run+1, b.o.Runs, folder, written)
			b.outputs[folder] = append(b.outputs[folder], written)
		}
	}
	return nil
}

// output returns how many bytes a new farm in one process and a command write to the disk for each
// byte of the command's output.
func (b *localBench) output(ctx context.Context, programs string) (written float64, err error) {
	up, address, data, err := b.startUp(ctx, programs)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, up.End(), os.RemoveAll(data)) }()
	conn, err := dial.Dial(address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	actions, err := testbed.StoreVariants(ctx, casclient.New(conn, casclient.Options{NoCompression: true}), 1, &repb.Command{
		Arguments: []string{"/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >out", b.o.output)}, OutputPaths: []string{"out"},
	})
	if err != nil {
		return 0, err
	}
	before, err := bytesWritten(up)
	if err != nil {
		return 0, err
	}
	stream, err := repb.NewExecutionClient(conn).Execute(ctx, &repb.ExecuteRequest{ActionDigest: actions[0].Proto(), SkipCacheLookup: true})
	if err != nil {
		return 0, err
	}
	response, err := load.AwaitAnswer(stream)
	if err != nil {
		return 0, err
	}
	files := response.GetResult().GetOutputFiles()
	if len(files) != 1 || files[0].GetDigest().GetSizeBytes() != b.o.output {
		return 0, fmt.Errorf("the output is %v, want %d bytes", files, b.o.output)
	}
	after, err := bytesWritten(up)
	return float64(b.o.output+after-before) / float64(b.o.output), err
}

// bytesWritten returns the bytes that a program, without its children, has written to disks.
func bytesWritten(p *program.Program) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "io"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not say what process %d has written", p.PID())
}
