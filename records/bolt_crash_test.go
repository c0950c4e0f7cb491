package records

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const (
	crashVar  = "FORERUNNER_KV_CRASH_FILE"
	crashKeys = 200
)

// TestBoltSurvivesSIGKILL kills a process during writes, several times with the same file. Each
// time the file must be intact and have everything that was flushed.
func TestBoltSurvivesSIGKILL(t *testing.T) {
	path := boltPath(t)
	for round := range 8 {
		flushed := crashRunAndKill(t, path, 3+round*5)
		core, logs := observer.New(zap.InfoLevel)
		b := openBolt(t, path, BoltOptions{Logger: zap.New(core)})
		if logs.Len() > 0 {
			t.Fatalf("log: %v", logs.All())
		}
		for k := range crashKeys {
			var last uint32
			expectGrowing(t, b, k, &last)
			if want := flushed - crashKeys + 1; int(last) < want {
				t.Errorf("record %d has version %d, %d was flushed", k, last, want)
			}
		}
		closeBolt(t, b)
	}
}

// crashRunAndKill starts the child, kills it after a number of flushes, and returns the last
// flushed version.
func crashRunAndKill(t *testing.T, path string, flushes int) (version int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBoltCrashChild$")
	child.Env = append(os.Environ(), crashVar+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; n < flushes && lines.Scan(); n++ {
		if version, err = strconv.Atoi(lines.Text()); err != nil {
			t.Errorf("the child says %q", lines.Text())
		}
	}
	_ = child.Process.Kill()
	for lines.Scan() { // lines that the child wrote before it was killed
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			version = n
		}
	}
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	return version
}

// TestBoltCrashChild is the process that is killed. It writes increasing versions, and prints the
// flushed ones.
func TestBoltCrashChild(t *testing.T) {
	path := os.Getenv(crashVar)
	if path == "" {
		return
	}
	b, err := OpenBolt(path, BoltOptions{CommitAfter: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	start := crashStart(b)
	for n := start; ; n++ {
		if err := b.Put(context.Background(), testKey(n%crashKeys), testValue(n, 50+n*7%5000)); err != nil {
			t.Fatal(err)
		}
		if n%70 == 0 && n > start+crashKeys {
			if err := b.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			fmt.Println(n)
		}
	}
}

// crashStart returns a version above all versions in the file.
func crashStart(b *Bolt) int {
	n := 0
	for k := range crashKeys {
		if value, err := b.Get(context.Background(), testKey(k)); err == nil {
			version, _ := versionOf(value)
			n = max(n, int(version))
		}
	}
	return (n/crashKeys + 1) * crashKeys
}
