// Command bench measures parts of Forerunner against alternatives on the same machine. It is for
// developers: make bench-vfs, bench-prefetch, bench-scheduler, bench-worker, bench-local,
// bench-sizes, bench-quotas, bench-pages and bench-scrub run it, and docs/BENCHMARKS.md explains
// the rows.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/local"
	"github.com/forerunner-build/forerunner/bench/pages"
	"github.com/forerunner-build/forerunner/bench/prefetch"
	"github.com/forerunner-build/forerunner/bench/quotas"
	"github.com/forerunner-build/forerunner/bench/scheduler"
	"github.com/forerunner-build/forerunner/bench/scrub"
	"github.com/forerunner-build/forerunner/bench/sizes"
	"github.com/forerunner-build/forerunner/bench/vfs"
	"github.com/forerunner-build/forerunner/bench/worker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

func main() {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	root := &cobra.Command{
		Use: "bench", Short: "measure parts of Forerunner on this machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(vfs.NewCommand(), prefetch.NewCommand(), scheduler.NewCommand(), worker.NewCommand(), local.NewCommand(),
		sizes.NewCommand(), quotas.NewCommand(), pages.NewCommand(), scrub.NewCommand(),
		vfs.NewChildCommand(), scheduler.NewChildCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
