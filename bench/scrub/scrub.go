package scrub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/scrub"
)

// The blobs that the measured scrub reads.
const (
	scrubLarge, scrubLargeBytes = 256, 1 << 20
	scrubSmall, scrubSmallBytes = 2048, 16 << 10
	scrubBytes                  = scrubLarge*scrubLargeBytes + scrubSmall*scrubSmallBytes
)

// scrubRates are in MiB per second; 0 means no limit.
var scrubRates = []int64{32, 128, 0}

const rowScrubCPU = "scrub_cpu_s_per_gib"

func scrubRow(rate int64) string {
	if rate == 0 {
		return "scrub_mibps_unbound"
	}
	return fmt.Sprint("scrub_mibps_", rate)
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &report.Options{}
	names := []string{rowScrubCPU, rowHashCPU, rowStreamCPU, rowVerifiedCPU, rowOpen}
	blobs := 0
	for _, rate := range scrubRates {
		names = append(names, scrubRow(rate))
	}
	cmd := &cobra.Command{
		Use: "scrub", Short: "measure what it costs to verify a store, and to open one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(names); err != nil {
				return err
			}
			return benchScrub(cmd.Context(), o, blobs, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	cmd.Flags().IntVar(&blobs, "blobs", 1_000_000, "blobs in the store that is opened")
	return cmd
}

func benchScrub(ctx context.Context, o *report.Options, blobs int, w io.Writer) (err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	facts := report.Machine(dir)
	rows, err := measureScrubs(ctx, o, filepath.Join(dir, "cas"))
	if err != nil {
		return err
	}
	streams, err := measureStreams(ctx, o, filepath.Join(dir, "streams"))
	if err != nil {
		return err
	}
	opened, err := measureOpen(o, filepath.Join(dir, "many"), blobs)
	if err != nil {
		return err
	}
	rows = slices.Concat(rows, streams, opened)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.Runs)
	return errors.Join(printErr, report.Print(w, rows), report.Write(o.Out, o.File("scrub", nil), rows))
}

// measureScrubs scrubs a store at several rates.
func measureScrubs(ctx context.Context, o *report.Options, dir string) (rows []report.Row, err error) {
	store, err := disk.Open(dir, disk.Options{MaxBytes: 4 * scrubBytes})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	report.Progress("%d blobs of 1 MiB, %d of 16 KiB", scrubLarge, scrubSmall)
	if err := fillForScrub(ctx, store); err != nil {
		return nil, err
	}
	for _, rate := range scrubRates {
		if !o.Wants(scrubRow(rate), rowScrubCPU) {
			continue
		}
		var speeds, cpus []float64
		for run := range o.Runs {
			report.Progress("%s, run %d of %d", scrubRow(rate), run+1, o.Runs)
			speed, cpu, err := scrubOnce(ctx, store, rate<<20)
			if err != nil {
				return nil, err
			}
			speeds, cpus = append(speeds, speed), append(cpus, cpu)
		}
		if o.Wants(scrubRow(rate)) {
			row := report.NewRow(scrubRow(rate), report.Median(speeds), "MiB/s")
			if rate > 0 {
				row.Baseline = fmt.Sprintf("%d configured", rate)
			}
			rows = append(rows, row)
		}
		if rate == 0 && o.Wants(rowScrubCPU) {
			rows = append(rows, report.NewRow(rowScrubCPU, report.Median(cpus), "s/GiB"))
		}
	}
	return rows, nil
}

func fillForScrub(ctx context.Context, store *disk.Store) error {
	for i := range uint64(scrubLarge + scrubSmall) {
		b := make([]byte, scrubSmallBytes)
		if i < scrubLarge {
			b = make([]byte, scrubLargeBytes)
		}
		binary.LittleEndian.PutUint64(b, i)
		if err := store.PutBytes(ctx, digest.Of(digest.SHA256, b), b); err != nil {
			return err
		}
	}
	return nil
}

// scrubOnce scrubs all blobs at a rate, with an empty page cache. It returns the speed in MiB per
// second, and the CPU seconds per GiB.
func scrubOnce(ctx context.Context, store *disk.Store, rate int64) (speed, cpu float64, err error) {
	if err := report.DropCache(filepath.Join(store.Dir(), "sha256")); err != nil {
		return 0, 0, err
	}
	if rate == 0 {
		rate = math.MaxInt64
	}
	// Otherwise the blobs would count as verified in this second.
	time.Sleep(1100 * time.Millisecond)
	if err := os.RemoveAll(filepath.Join(store.Dir(), "scrub")); err != nil {
		return 0, 0, err
	}
	scrubber, err := disk.NewScrubber(store, nil, scrub.Options{Rate: rate})
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	began, before := time.Now(), report.CPUTime()
	go func() {
		defer close(done)
		scrubber.Run(ctx)
	}()
	for scrubber.Status().Ended.IsZero() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	took, used := time.Since(began), report.CPUTime()-before
	cancel()
	<-done
	st := scrubber.Status()
	if st.Bytes != scrubBytes || st.Damaged != 0 {
		return 0, 0, fmt.Errorf("a pass read %d of %d bytes, and found %d files damaged", st.Bytes, scrubBytes, st.Damaged)
	}
	return scrubBytes / took.Seconds() / (1 << 20), used.Seconds() * (1 << 30) / scrubBytes, nil
}
