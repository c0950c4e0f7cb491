package reload_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/auth/reload"
)

func join(contents [][]byte) (string, error) {
	var parts []string
	for _, c := range contents {
		parts = append(parts, string(c))
	}
	text := strings.Join(parts, "|")
	if strings.Contains(text, "bad") {
		return "", errors.New("this is bad")
	}
	return text, nil
}

func TestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		write := func(path, text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(a, "1")
		write(b, "2")
		core, logged := observer.New(zap.WarnLevel)
		v, err := reload.New(zap.New(core), join, a, "", b)
		if err != nil {
			t.Fatal(err)
		}
		want := func(text string, warnings int) {
			t.Helper()
			time.Sleep(time.Second)
			if got := v.Get(); got != text || logged.Len() != warnings {
				t.Errorf("%q after %d warnings, want %q after %d", got, logged.Len(), text, warnings)
			}
		}
		want("1||2", 0)
		write(a, "3")
		if got := v.Get(); got != "1||2" {
			t.Errorf("%q at once: the files were looked at again within the same second", got)
		}
		want("3||2", 0)
		write(b, "bad")
		want("3||2", 1)
		want("3||2", 1)
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		want("3||2", 2)
		// As Kubernetes replaces a secret.
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte("4"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("new", b); err != nil {
			t.Fatal(err)
		}
		want("3||4", 2)
		write(b, "bad")
		want("3||4", 3) // not the same failure any more
	})
}

func TestValueNeedsItsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := reload.New(nil, join, path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reload.New(nil, join, path); err == nil || !strings.Contains(err.Error(), path+": this is bad") {
		t.Errorf("a bad file: %v", err)
	}
}

// TestValueIsAskedByMany is for the race detector.
func TestValueIsAskedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
		write("0")
		v, err := reload.New(nil, join, path)
		if err != nil {
			t.Fatal(err)
		}
		write("1")
		var askers sync.WaitGroup
		for range 20 {
			askers.Go(func() {
				for range 5 {
					time.Sleep(time.Second)
					if got := v.Get(); got != "0" && got != "1" {
						t.Errorf("%q", got)
					}
				}
			})
		}
		askers.Wait()
		if got := v.Get(); got != "1" {
			t.Errorf("%q in the end", got)
		}
	})
}
