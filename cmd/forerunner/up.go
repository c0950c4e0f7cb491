package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web"
)

// A localFarm is a scheduler, its storage and one worker in this process.
type localFarm struct {
	scheduler farm.Scheduler
	worker    farm.Worker
	upFlags
}

// upFlags are settings of a farm in one process that differ from those of separate programs.
type upFlags struct {
	Data          string `flag:"data" group:"Disk" unit:"FOLDER" otherwise:"/var/lib/forerunner; in the cache folder of users other than root" doc:"Data folder of the farm"`
	CacheSize     string `flag:"cache-size" unit:"SIZE" otherwise:"80% of the free space" doc:"Size of the storage, which is also the worker's store"`
	farm.Together `settings:"inline"`
	Slots         int `flag:"slots" group:"Worker" unit:"NUMBER" min:"0" default:"0" doc:"Number of commands that run at once; 0 is one for each CPU"`
}

// settings are the settings for a farm in one process.
func (l *localFarm) settings() *settings.Set {
	l.Data = flags.DefaultData("forerunner")
	l.scheduler.Callers.Memory = serve.BesideCommands()
	ofScheduler := l.scheduler.Settings().Without("storage", "action-cache", "state", "lease", "lease-time", "learn-sizes", "record",
		"settle", "tls-ca", "tls-client-cert", "tls-client-key", "token-file")
	ofWorker := l.worker.Settings().Only("Worker", "Commands", "Limits", "Inputs", "Pipeline")
	return settings.Of(&l.upFlags).Needed("data").And(ofScheduler).And(ofWorker)
}

// run serves until drain ends; running actions are then finished. ready is
// called with the farm's address when it takes work.
func (l *localFarm) run(drain, abort context.Context, log *zap.Logger, ready func(address string)) error {
	data, err := filepath.Abs(l.Data)
	if err != nil {
		return err
	}
	l.share(data, log)
	if l.scheduler.Callers.Waiting == 0 {
		l.scheduler.Callers.Waiting = serve.FewWaiting
	}
	stop, err := l.scheduler.Callers.PaceRuntime(abort, log)
	if err != nil {
		return err
	}
	defer stop()
	l.worker.Sees.Hide, l.worker.HideFiles = []string{data}, l.scheduler.Files()
	if err := l.scheduler.Check(); err != nil { // before the worker creates folders
		return err
	}
	// The launchers come before every mount, and before the ports.
	started, err := l.worker.Start(abort)
	if err != nil {
		return err
	}
	// The scheduler and its storage go on until the worker has drained.
	l.scheduler.EndsWithReady = true
	l.scheduler.Join(started, l.Together)
	err = l.scheduler.Run(abort, abort, func(address string) error {
		return started.Run(drain, abort, func() { ready(l.scheduler.Scheme() + address) })
	})
	return errors.Join(err, started.Close(abort))
}

// share gives scheduler and worker their parts of the data folder, and the worker those settings
// that are for both.
func (l *localFarm) share(data string, log *zap.Logger) {
	l.scheduler.Data, l.scheduler.Storage.CacheSize, l.scheduler.Logger = data, l.CacheSize, log
	l.worker.Slots = l.Slots
	l.worker.Data, l.worker.CacheSize, l.worker.Logger = filepath.Join(data, "worker"), l.CacheSize, log
	if !l.OneStore { // two stores share one disk
		l.scheduler.Storage.FreePercent, l.worker.FreePercent = 40, 40
	}
	l.worker.Tracing, l.worker.Callers = l.scheduler.Tracing, l.scheduler.Callers
	l.worker.Disk = l.scheduler.Disk
}

func upCommand() *cobra.Command {
	l := &localFarm{}
	logging := flags.Logging{IsWhole: true}
	cmd := flags.NewCommand("up", "run a whole farm on this machine",
		"Runs a scheduler, its storage and one worker on loopback until you stop it.\n"+
			"SIGTERM or Ctrl-C lets running actions finish; a second one ends them.",
		l.settings().And(settings.Of(&logging)), func(cmd *cobra.Command, _ []string) error {
			log, err := logging.NewLogger()
			if err != nil {
				return err
			}
			drain, abort, release := logging.Signals(cmd.Context())
			defer release()
			l.worker.LogForm = logging.Form()
			return l.run(drain, abort, log, func(address string) {
				pages := l.scheduler.Pages()
				fmt.Fprintf(cmd.OutOrStdout(), "# The farm is up. For Bazel, put this into .bazelrc:\n%s"+
					"# For one command: forerunner exec --remote %s --input DIR --output PATH -- CMD ARGS\n",
					web.Bazelrc(address, pages, l.worker.Slots), address)
				if pages != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "# Pages: %s\n", pages)
				}
			})
		})
	cmd.Example = "forerunner up\nforerunner up --data /srv/forerunner --cache-size 200G --slots 8"
	return cmd
}
