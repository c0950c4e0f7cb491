package farm

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
)

// oldData is the data folder of a scheduler of the version that had quotas and hints in one file
// and drains in another. That version wrote testdata/records-of-one-file.db.gz.
func oldData(t *testing.T, file string) (data string) {
	t.Helper()
	packed, err := os.Open("testdata/records-of-one-file.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	data = t.TempDir()
	if err := os.WriteFile(filepath.Join(data, file), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "drains.json"), []byte(`[{"host": "old-*"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	return data
}

// remembered starts as a scheduler does, and returns what it knows from before and its log.
func remembered(t *testing.T, s *Scheduler) (scheduler.ServerOptions, *observer.ObservedLogs, error) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	s.Listen, s.Logger = "127.0.0.1:0", zap.New(core)
	state, err := s.State.Open(s.Data, &dial.Client{}, s.Logger)
	if err != nil {
		t.Fatal(err)
	}
	o := scheduler.ServerOptions{Logger: s.Logger}
	config, err := s.check()
	if err != nil {
		t.Fatal(err)
	}
	o.Config = config.scheduler
	err = s.remember(t.Context(), state, config.sizes, &o)
	profile := records.Key{Bucket: names.ProfileBucket, Instance: "farm", Digest: digest.Of(digest.SHA256, []byte("7"))}
	if value, hintErr := state.Hints.Get(t.Context(), profile); hintErr == nil && string(value) != "profile 7" {
		t.Errorf("a profile became %q", value)
	} else if hintErr != nil {
		logs.TakeAll()
	}
	return o, logs, errors.Join(err, state.Close())
}

// TestRecordsOfOneFileAreTakenOver starts over what the last version left: hints stay where they
// were, quotas and drains move to the folder of their own, once.
func TestRecordsOfOneFileAreTakenOver(t *testing.T) {
	cohorts := writeConfig(t, "labels: {a: {pool: a}}\ncohorts: {farm: {labels: [a], unit: slots}}\n")
	for name, place := range map[string]state.Location{"records.db": "", "elsewhere.db": "bolt:"} {
		data := oldData(t, name)
		if place != "" {
			place += state.Location(filepath.Join(data, name))
		}
		s := &Scheduler{Data: data, State: place, ConfigFile: cohorts}
		for range 2 {
			o, logs, err := remembered(t, s)
			if err != nil || logs.Len() != 0 {
				t.Fatalf("%s: %v, %v", name, err, logs.All())
			}
			if len(o.Quotas) != 1 || o.Quotas[0] != quotaRecord("farm", "team", 3, 7) {
				t.Errorf("%s: quotas %v", name, o.Quotas)
			}
			if len(o.Drains) != 1 || o.Drains[0].Pattern.String() != "host=old-*" {
				t.Errorf("%s: drains %v", name, o.Drains)
			}
			if _, err := os.Stat(filepath.Join(data, "drains.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: drains are left where they were: %v", name, err)
			}
		}
		// A record that an operator removes does not return from its former place.
		if err := os.RemoveAll(filepath.Join(data, durableFolder)); err != nil {
			t.Fatal(err)
		}
		if o, _, err := remembered(t, s); err != nil || len(o.Quotas)+len(o.Drains) != 0 {
			t.Errorf("%s: %v, %v are back, %v", name, o.Quotas, o.Drains, err)
		}
	}
}

// TestDamagedHintsAreLostAndQuotasAreNot damages the hints, which must be replaced with a warning,
// and then the quotas, without which the scheduler must not start: the error names the file and the
// remedy.
func TestDamagedHintsAreLostAndQuotasAreNot(t *testing.T) {
	s := &Scheduler{Data: oldData(t, "records.db"), ConfigFile: writeConfig(t, "labels: {a: {pool: a}}\ncohorts: {farm: {labels: [a], unit: slots}}\n")}
	if _, _, err := remembered(t, s); err != nil {
		t.Fatal(err)
	}
	hints := filepath.Join(s.Data, state.RecordsFile)
	if err := os.WriteFile(hints, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _, err := remembered(t, s)
	if err != nil || len(o.Quotas) != 1 || len(o.Drains) != 1 {
		t.Errorf("without hints: quotas %v, drains %v, %v", o.Quotas, o.Drains, err)
	}
	if aside, err := filepath.Glob(hints + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	drains, quotas := s.durable(nil)
	for _, file := range []string{(durable.Text{Store: quotas.Store, Key: quotas.Key()}).String(), drains.String()} {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, len(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := remembered(t, s); !errors.Is(err, records.ErrDamaged) || !strings.Contains(err.Error(), "restore "+file+", or remove it") {
			t.Errorf("%s is damaged: %v", file, err)
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
