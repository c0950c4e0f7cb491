// Command bench measures parts of Forerunner against what they are to be compared
// with, on the machine it runs on. It is for developers: make bench-vfs, bench-prefetch,
// bench-scheduler, bench-worker, bench-sizes, bench-quotas, bench-pages and bench-scrub run it, docs/BENCHMARKS.md says
// what the rows mean.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/forerunner-build/forerunner/bench"
	"github.com/forerunner-build/forerunner/runner"
)

func main() {
	runner.MainIfLauncher()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := bench.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
