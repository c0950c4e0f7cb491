package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
)

// A localFarm is a scheduler, its storage and one worker in this process.
type localFarm struct {
	scheduler farm.Scheduler
	worker    farm.Worker
	data      string
	cacheSize string
}

func (l *localFarm) flags(f *pflag.FlagSet) {
	f.StringVar(&l.scheduler.Listen, "listen", "127.0.0.1:8980", "`address` for gRPC")
	f.StringVar(&l.scheduler.HTTP, "http", "127.0.0.1:8981", "`address` for pages, health and metrics over HTTP; empty: none")
	l.scheduler.PageFlags(f)
	f.StringVar(&l.data, "data", flags.DefaultData("forerunner"), "`folder` for everything that is kept")
	f.StringVar(&l.cacheSize, "cache-size", "", "bytes that storage and the worker's store may each use, e.g. `20G` (default 40% of what is free)")
	f.IntVar(&l.worker.Slots, "slots", 0, "commands at once; 0: one for each CPU")
	l.scheduler.Ports.Flags(f)
	l.scheduler.Callers.Memory = serve.BesideCommands()
	l.scheduler.Callers.Flags(f)
	l.scheduler.Tracing.Flags(f)
	l.scheduler.Scrub.Flags(f)
	l.worker.PipelineFlags(f)
	l.worker.FilesystemFlags(f)
	l.worker.LimitFlags(f)
	l.worker.IsolationFlags(f)
	l.worker.IdentityFlags(f)
	l.scheduler.ConfigFlags(f)
}

// run serves until drain ends; running actions are then finished. ready is
// called with the farm's address when it takes work.
func (l *localFarm) run(drain, abort context.Context, log *zap.Logger, ready func(address string)) error {
	data, err := filepath.Abs(l.data)
	if err != nil {
		return err
	}
	l.scheduler.Data, l.scheduler.CacheSize, l.scheduler.Logger = data, l.cacheSize, log
	l.worker.Data, l.worker.CacheSize, l.worker.Logger = filepath.Join(data, "worker"), l.cacheSize, log
	// Two stores share one disk.
	l.scheduler.FreePercent, l.worker.FreePercent = 40, 40
	l.scheduler.VerifyEvery = l.worker.VerifyEvery
	l.worker.NoCompression = true
	l.worker.Tracing, l.worker.Callers = l.scheduler.Tracing, l.scheduler.Callers
	l.worker.Scrub = l.scheduler.Scrub
	if _, err := l.scheduler.Callers.Memory.Enforce(); err != nil {
		return err
	}
	l.worker.Hide, l.worker.HideFiles = []string{data}, l.scheduler.Files()
	// The launchers come before every mount, and before the ports.
	started, err := l.worker.Start(abort)
	if err != nil {
		return err
	}
	// The scheduler and its storage go on until the worker has drained.
	l.scheduler.EndsWithReady = true
	l.scheduler.Join(&l.worker)
	err = l.scheduler.Run(abort, abort, func(address string) error {
		return started.Run(drain, abort, func() { ready(l.scheduler.Scheme() + address) })
	})
	return errors.Join(err, started.Close(abort))
}

func upCommand() *cobra.Command {
	l := &localFarm{}
	var json bool
	cmd := flags.NewCommand("up", "run a whole farm on this machine",
		"Runs a scheduler, its storage and one worker, on loopback, until it is told to stop.\n"+
			"SIGTERM or Ctrl-C lets running actions finish; a second one ends them.",
		func(cmd *cobra.Command, _ []string) error {
			log, err := flags.NewLogger(json)
			if err != nil {
				return err
			}
			drain, abort, release := flags.Signals(cmd.Context())
			defer release()
			return l.run(drain, abort, log, func(address string) {
				fmt.Fprintf(cmd.OutOrStdout(), "# The farm is up. For Bazel, put this into .bazelrc:\n"+
					"build --remote_executor=%[1]s\n"+
					"build --remote_timeout=3600\n"+
					"build --noremote_upload_local_results\n"+
					"build --jobs=%[2]d\n"+
					"# For one command: forerunner exec --remote %[1]s --input DIR --output PATH -- CMD ARGS\n",
					address, max(4*l.worker.Slots, 8))
				if pages := l.scheduler.Pages(); pages != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "# Pages: %s\n", pages)
				}
			})
		})
	l.flags(cmd.Flags())
	cmd.Flags().BoolVar(&json, "log-json", false, "log as JSON")
	return cmd
}
