package records

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const (
	damageRecords = 400
	damageFiles   = 60
)

// damageSource returns the content of a file with branch pages, overflow pages, inline buckets and
// free pages.
func damageSource(t *testing.T) []byte {
	t.Helper()
	path := boltPath(t)
	b := openBolt(t, path, BoltOptions{})
	for round := range 3 {
		for n := range damageRecords {
			put(t, b, testKey(n), damageValue(n, round))
		}
		flush(t, b)
	}
	small := testKey(0)
	small.Bucket = "small"
	put(t, b, small, []byte("inline"))
	closeBolt(t, b)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func damageValue(n, round int) []byte {
	if n%50 == 7 {
		return testValue(n+round, 12000)
	}
	return testValue(n+round, 30+n)
}

// TestBoltSetsADamagedFileAside opens files with different kinds of damage. Old records are lost,
// and new ones are kept.
func TestBoltSetsADamagedFileAside(t *testing.T) {
	good := damageSource(t)
	for name, damage := range map[string]func(b []byte) []byte{
		"text":            func([]byte) []byte { return []byte("This is no database.\n") },
		"one byte":        func(b []byte) []byte { return b[:1] },
		"cut":             func(b []byte) []byte { return b[:len(b)/4] },
		"cut in the meta": func(b []byte) []byte { return b[:100] },
		"no start":        func(b []byte) []byte { clear(b[:2*os.Getpagesize()]); return b },
		"zeroes":          func(b []byte) []byte { clear(b[2*os.Getpagesize():]); return b },
		"all zeroes":      func(b []byte) []byte { clear(b); return b },
		"pages swapped": func(b []byte) []byte {
			p := os.Getpagesize()
			half := len(b) / p / 2 * p
			return append(b[:2*p:2*p], append(b[half:], b[2*p:half]...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "records [1]*")
			if err := os.WriteFile(path, damage(append([]byte{}, good...)), 0o600); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.InfoLevel)
			b := openBolt(t, path, BoltOptions{Logger: zap.New(core)})
			expect(t, b, testKey(1), nil)
			put(t, b, testKey(1), testValue(1, 10))
			closeBolt(t, b)
			b = openBolt(t, path, BoltOptions{Logger: zap.New(core)})
			expect(t, b, testKey(1), testValue(1, 10))
			if logs.Len() != 1 || logs.All()[0].Level != zap.WarnLevel {
				t.Errorf("log: %v", logs.All())
			}
			if names := setAsideOf(t, path); len(names) != 1 {
				t.Errorf("set aside: %v", names)
			}
		})
	}
}

// setAsideOf returns the names of the damaged files next to path.
func setAsideOf(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".damaged-") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestBoltKeepsTheLastDamagedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records [1]*")
	stranger := filepath.Join(filepath.Dir(path), "records 1.damaged-0")
	if err := os.WriteFile(stranger, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range maxSetAside + 2 {
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		closeBolt(t, openBolt(t, path, BoltOptions{}))
	}
	if names := setAsideOf(t, path); len(names) != maxSetAside {
		t.Errorf("set aside: %v, want %d", names, maxSetAside)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Error(err)
	}
}

// TestBoltSurvivesAnyDamage changes random bytes, more often in the headers of pages. Each record
// must be right or missing, and the store must continue to work. The test would find a crash.
func TestBoltSurvivesAnyDamage(t *testing.T) {
	good := damageSource(t)
	random := rand.New(rand.NewPCG(1, 2))
	page := os.Getpagesize()
	whole, aside := 0, 0
	for range damageFiles {
		content := append([]byte{}, good...)
		for range 1 + random.IntN(4) {
			at := random.IntN(len(content))
			if random.IntN(4) > 0 {
				at = at/page*page + random.IntN(100)
			}
			content[at] = byte(random.Uint32() >> random.IntN(8))
		}
		if random.IntN(10) == 0 {
			content = content[:random.IntN(len(content))]
		}
		path := filepath.Join(t.TempDir(), "records")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		whole += useDamaged(t, path)
		aside += len(setAsideOf(t, path))
	}
	t.Logf("of %d files %d were set aside, %d records of the others read", damageFiles, aside, whole)
	if aside < damageFiles/10 || aside > damageFiles*9/10 || whole == 0 {
		t.Errorf("%d of %d files were set aside, %d records read: the test covers too little", aside, damageFiles, whole)
	}
}

// useDamaged reads and writes a file and returns the number of intact records.
func useDamaged(t *testing.T, path string) (whole int) {
	t.Helper()
	b := openBolt(t, path, BoltOptions{MaxBytes: 150000})
	for n := range damageRecords {
		got, err := b.Get(t.Context(), testKey(n))
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("get: %v", err)
		}
		if err == nil && string(got) != string(damageValue(n, 2)) {
			t.Errorf("record %d is wrong", n)
		}
		if err == nil {
			whole++
		}
	}
	for n := damageRecords / 2; n < damageRecords*2; n++ { // some replace records, some cause evictions
		put(t, b, testKey(n), damageValue(n, 3))
	}
	flush(t, b)
	expect(t, b, testKey(damageRecords*2-1), damageValue(damageRecords*2-1, 3))
	closeBolt(t, b)
	return whole
}
