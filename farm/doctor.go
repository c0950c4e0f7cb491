package farm

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/probe"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/web/text"
	"github.com/forerunner-build/forerunner/worker/health/diskquota"
)

// A FindingState is the result of a check.
type FindingState string

// The FindingStates there are.
const (
	FindingOK      FindingState = "ok"
	FindingLimited FindingState = "limited" // a worker starts, but lacks something
	FindingBroken  FindingState = "broken"  // a worker does not start, or does not work
	FindingSkipped FindingState = "skipped"
)

// A Finding is one result of Examine.
type Finding struct {
	What  string       `json:"what"`
	State FindingState `json:"state"`
	// Why is the present state or the missing part, Costs the consequence, and Remedy what to do
	// about it; each may be empty.
	Why    string `json:"why,omitempty"`
	Costs  string `json:"costs,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

const (
	// littleRoom is how much free space a worker should find.
	littleRoom = 10 << 30
	// ownPrograms is how the names of our programs begin.
	ownPrograms = "forerunner"
	// soonExpired is how long a certificate should last.
	soonExpired = 14 * 24 * time.Hour
	// probeBytes is the size of the blob that the storage is tried with.
	probeBytes = 4 << 20
	// remotePatience limits a call to the storage that only asks, transferPatience one that moves
	// the blob of probeBytes.
	remotePatience, transferPatience = 10 * time.Second, time.Minute
)

// Examine checks whether this machine meets w's needs, by starting as a worker does in a temporary
// folder below Data. It checks the scheduler and the storage, too, if asked. It serves nobody. w
// must not be used after it.
func (w *Worker) Examine(ctx context.Context, scheduler, storage bool) []Finding {
	e := &examination{}
	w.Logger = zap.New(e)
	w.Client.Logger, w.State = w.Logger, ""
	e.try("kernel", kernel)
	e.try("clock", func() (string, error) { return clock(e) })
	e.try("certificates", func() (string, error) { return w.certificates(e) })
	e.try("ports", func() (string, error) { return w.freePorts(e) })
	e.try("data folder", func() (string, error) { return w.dataFolder(e) })
	e.try("scheduler", func() (string, error) { return w.askScheduler(ctx, scheduler) })
	e.try("storage", func() (string, error) { return w.askStorage(ctx, storage) })
	if !e.broken("data folder") {
		w.examineStart(ctx, e)
	}
	return e.findings
}

// An examination collects findings. It is a zapcore.Core: each warning of a worker at its start,
// with its cost and remedy, is a finding.
type examination struct {
	mu       sync.Mutex
	findings []Finding
	fields   []zapcore.Field
	parent   *examination // that has the findings; nil: this one
}

var (
	// errSkipped: a check was not made.
	errSkipped = errors.New("not tried")
	// errFound: a check has added its Finding.
	errFound = errors.New("found")
)

// A remediable is an error of a check with its remedy.
type remediable struct {
	error
	remedy string
}

// try adds the result of one check.
func (e *examination) try(what string, do func() (found string, err error)) {
	found, err := do()
	if errors.Is(err, errFound) {
		return
	}
	f := Finding{What: what, State: FindingOK, Why: found}
	switch {
	case errors.Is(err, errSkipped):
		f.State = FindingSkipped
	case err != nil:
		f.State, f.Why = FindingBroken, err.Error()
		if r := (*remediable)(nil); errors.As(err, &r) {
			f.Remedy = r.remedy
		}
	}
	e.add(f)
}

func (e *examination) add(f Finding) {
	e = cmp.Or(e.parent, e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.findings = append(e.findings, f)
}

func (e *examination) broken(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.findings {
		if f.What == what && f.State == FindingBroken {
			return true
		}
	}
	return false
}

// Enabled implements zapcore.LevelEnabler.
func (e *examination) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (e *examination) With(fields []zapcore.Field) zapcore.Core {
	return &examination{parent: cmp.Or(e.parent, e), fields: append(append([]zapcore.Field(nil), e.fields...), fields...)}
}

// Check implements zapcore.Core.
func (e *examination) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Enabled(entry.Level) {
		return checked.AddCore(entry, e)
	}
	return checked
}

// Write implements zapcore.Core.
func (e *examination) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	said := zapcore.NewMapObjectEncoder()
	for _, f := range append(append([]zapcore.Field(nil), e.fields...), fields...) {
		f.AddTo(said)
	}
	get := func(name string) string { s, _ := said.Fields[name].(string); return s }
	e.add(Finding{What: entry.Message, State: FindingLimited, Why: cmp.Or(get("missing"), get("error")), Costs: get("costs"), Remedy: get("remedy")})
	return nil
}

// Sync implements zapcore.Core.
func (e *examination) Sync() error { return nil }

// kernel describes the machine.
func kernel() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	user := "root"
	if id := os.Geteuid(); id != 0 {
		user = fmt.Sprintf("user %d", id)
	}
	return fmt.Sprintf("%s %s on %s, as %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]), user), nil
}

// clock reports whether the machine's clock goes by others.
func clock(e *examination) (string, error) {
	isSynchronized, err := probe.IsSynchronized()
	switch {
	case err != nil:
		return err.Error(), errSkipped
	case isSynchronized:
		return "it goes by others", nil
	}
	e.add(Finding{
		What: "clock", State: FindingLimited, Why: "the kernel does not know of anything that sets it",
		Costs:  "if it is wrong, so are the times of actions and logs of this machine, and certificates or tokens may count as expired, or as not good yet",
		Remedy: "run chrony, ntpd or systemd-timesyncd, here or on the host of this virtual machine",
	})
	return "", errFound
}

// certificates reads the files of TLS as the programs do, and reports when they expire.
func (w *Worker) certificates(e *examination) (string, error) {
	if _, err := w.Client.Certificates(); err != nil {
		return "", err
	}
	if _, err := w.Ports.Open(w.Logger); err != nil {
		return "", err
	}
	files := 0
	for _, file := range []string{w.Client.CA, w.Client.Cert, w.Ports.Cert, w.Ports.ClientCA} {
		if file == "" {
			continue
		}
		files++
		until, err := lasts(file)
		switch left := time.Until(until); {
		case err != nil:
			return "", err
		case left <= 0:
			return "", fmt.Errorf("%s: a certificate has expired at %s", file, until.UTC().Format(time.RFC3339))
		case left < soonExpired:
			e.add(Finding{
				What: "a certificate expires soon", State: FindingLimited, Why: fmt.Sprintf("%s is good until %s", file, until.UTC().Format(time.RFC3339)),
				Costs: "connections with it fail from then on", Remedy: "put a new one into the file: the programs read it again",
			})
		}
	}
	if files == 0 {
		return "none are configured; grpcs:// trusts the authorities of this system", nil
	}
	return fmt.Sprintf("%d files can be used", files), nil
}

// lasts returns when the first certificate of a PEM file expires.
func lasts(file string) (first time.Time, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return first, err
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, fmt.Errorf("%s: %w", file, err)
		}
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return first, nil
}

// freePorts listens where the worker would. A port that a forerunner has, maybe the worker that is
// examined, is no fault of the machine.
func (w *Worker) freePorts(e *examination) (string, error) {
	var free []string
	for _, address := range []string{w.HTTP, w.ServeCache} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if errors.Is(err, unix.EADDRINUSE) {
			switch other, known := serve.ListenerAt(address); {
			case known && strings.HasPrefix(other.Program, ownPrograms):
				e.add(Finding{
					What: "ports", State: FindingLimited, Why: fmt.Sprintf("%s has %s (process %d)", other.Program, address, other.PID),
					Costs:  "nothing if you examine that one; another worker on this machine does not start with this address",
					Remedy: "give another worker other addresses with --http and --serve-cache",
				})
				return "", errFound
			case known:
				return "", fmt.Errorf("%w: %s has it (process %d)", err, other.Program, other.PID)
			}
			return "", fmt.Errorf("%w: another program has it, maybe a worker of another user", err)
		}
		if err != nil {
			return "", err
		}
		if err := l.Close(); err != nil {
			return "", err
		}
		free = append(free, address)
	}
	if len(free) == 0 {
		return "none is asked for", nil
	}
	return strings.Join(free, " and ") + " can be used", nil
}

// dataFolder writes into the data folder, and measures the room.
func (w *Worker) dataFolder(e *examination) (string, error) {
	if err := w.absolute(); err != nil {
		return "", err
	}
	made := w.Data
	for { // the folders that are not there go again
		if _, err := os.Stat(filepath.Dir(made)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = filepath.Dir(made)
	}
	_, err := os.Stat(w.Data)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := datafolder.Make(w.Data); err != nil {
		return "", datafolder.Advised(err)
	}
	if isNew {
		defer func() { _ = removeEmpty(w.Data, made) }()
	}
	if err := folder.Writable(w.Data); err != nil {
		return "", datafolder.Advised(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(w.Data, &st); err != nil {
		return "", err
	}
	free := int64(st.Bavail) * st.Bsize
	if free < littleRoom {
		e.add(Finding{
			What: "little room in the data folder", State: FindingLimited, Why: fmt.Sprintf("%s has %s", w.Data, text.Bytes(free)),
			Costs: "inputs are evicted before they are used again, and large outputs fail", Remedy: "another disk with --data, or free some of this one",
		})
	}
	on, err := probe.FileSystem(w.Data)
	if err != nil {
		on = "a file system that is not known"
	}
	return fmt.Sprintf("%s on %s can be written, %s are free", w.Data, on, text.Bytes(free)), nil
}

// removeEmpty removes dir and the folders above it up to top, as far as they are empty.
func removeEmpty(dir, top string) error {
	for ; len(dir) >= len(top); dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// askScheduler asks whether the scheduler answers.
func (w *Worker) askScheduler(ctx context.Context, wanted bool) (string, error) {
	if !wanted {
		return "--scheduler says which one to ask", errSkipped
	}
	conn, err := w.Client.Dial(w.Scheduler)
	if err != nil {
		return "", fmt.Errorf("--scheduler: %w", err)
	}
	defer conn.Close()
	start := time.Now()
	if err := answers(ctx, conn); err != nil {
		return "", &remediable{fmt.Errorf("%s: %w", w.Scheduler, err), "start forerunner-scheduler there, or give another --scheduler"}
	}
	return fmt.Sprintf("%s answers after %s", w.Scheduler, time.Since(start).Round(time.Millisecond)), nil
}

// askStorage measures how fast the storage is, with a blob that nobody has.
func (w *Worker) askStorage(ctx context.Context, wanted bool) (string, error) {
	if !wanted {
		return "--storage or --scheduler says which one to ask", errSkipped
	}
	quiet := *w
	quiet.Logger = zap.NewNop() // what it warns of is in the error
	conn, storage, err := quiet.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer storage.Close()
	s, err := probe.Measure(ctx, storage.Client, probeBytes, probe.Patience{Answer: remotePatience, Transfer: transferPatience})
	if err != nil {
		return "", &remediable{fmt.Errorf("%s: %w", w.storageAddress(), err), "start the storage there, or give another --storage"}
	}
	rate := func(took time.Duration) string { return text.Bytes(int64(float64(s.Bytes)/took.Seconds())) + "/s" }
	return fmt.Sprintf("%s answers after %s, takes %s and gives %s, a blob of %s at a time", w.storageAddress(),
		s.RoundTrip.Round(10*time.Microsecond), rate(s.Upload), rate(s.Download), text.Bytes(probeBytes)), nil
}

// examineStart starts as a worker does.
func (w *Worker) examineStart(ctx context.Context, e *examination) {
	_, err := os.Stat(w.Data)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := datafolder.Make(w.Data); err != nil {
		return // dataFolder has done it before
	}
	data := w.Data
	if w.Data, err = os.MkdirTemp(data, "doctor-"); err != nil {
		e.add(Finding{What: "data folder", State: FindingBroken, Why: datafolder.Advised(err).Error()})
		return
	}
	w.CacheDir, w.Mount = "", "" // those of a worker that runs are not touched
	defer func() {
		err := folder.RemoveTree(w.Data)
		if isNew {
			err = errors.Join(err, os.Remove(data))
		}
		if err != nil {
			e.add(Finding{What: "what the examination left", State: FindingLimited, Why: err.Error()})
		}
	}()
	var s *Started
	e.try("commands", func() (string, error) {
		checked, err := w.check()
		if err != nil {
			return "", err
		}
		if s, err = w.start(ctx, checked); err != nil {
			return "", err
		}
		return s.describe(), nil
	})
	if s == nil {
		return
	}
	e.try("disk quotas", func() (string, error) { return s.quotas(), nil })
	e.try("input roots", func() (string, error) { return s.tryRoots() })
	if err := s.Close(ctx); err != nil {
		e.add(Finding{What: "the end of launchers and slots", State: FindingBroken, Why: err.Error()})
	}
}

// describe describes the view of commands.
func (s *Started) describe() string {
	parts := []string{"launchers start for " + plural.Of(s.w.Slots, "slot")}
	if s.plan.parent != nil {
		parts = append(parts, fmt.Sprintf("in cgroups (v%d)", s.plan.parent.Version()))
	}
	if s.isolation.sandbox != nil {
		parts = append(parts, "in a sandbox")
	}
	return strings.Join(parts, ", ")
}

// quotas lists the disk quotas that limit commands, and warns if they are unknown.
func (s *Started) quotas() string {
	isolation := s.isolation.defaults()
	quotas := diskquota.New(s.w.Data, isolation.Owners())
	quotas.Warn(s.w.Logger)
	said, _ := quotas.Describe()
	return cmp.Or(said, "none")
}

// tryRoots makes an input root as for actions, in a store of its own.
func (s *Started) tryRoots() (string, error) {
	roots, store, err := s.openRoots(prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	for _, c := range checks(store, roots) {
		if err = c.Try(); err != nil {
			err = fmt.Errorf("%s: %w", c.What, err)
			break
		}
	}
	how := "hard links"
	if roots.Method() == vfs.FUSE {
		how = "FUSE"
		if roots.Passthrough() {
			how += " with passthrough"
		}
	}
	return how, errors.Join(err, store.Close(), roots.Close())
}
