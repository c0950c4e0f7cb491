package command

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/test/programs"
)

// twoStores configures a farm in one process whose worker has a store of its own.
const twoStores = "tuning:\n  one_store: false\n"

// TestOneStore: a farm in one process keeps an input and an output once, unless its worker has a
// store of its own. It removes that store when it does without. A client uploads a damaged input
// again, because there is no other copy.
func TestOneStore(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	data := filepath.Join(f.Dir, "data")
	const text, made = "an input\n", "AN INPUT\n"
	f.Write("in/text", text)
	path := func(store, blob string) string {
		return filepath.Join(data, store, "cas", filepath.FromSlash(disk.BlobPath(digest.Of(digest.SHA256, []byte(blob)))))
	}
	run := func(address, script, want string) {
		f.Helper()
		f.Exec(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c", script).Expect(0, want)
	}
	expect := func(store string, there bool) {
		f.Helper()
		for _, blob := range []string{text, made} {
			got, err := os.ReadFile(path(store, blob))
			if there && (err != nil || !bytes.Equal(got, []byte(blob))) || !there && !os.IsNotExist(err) {
				f.Errorf("the store of the %s has %q of %q, %v; want it: %t", store, got, blob, err, there)
			}
		}
	}

	farm, address := f.Up(data, "--config", f.Write("farm.yaml", twoStores))
	run(address, "tr a-z A-Z <text | tee out", made)
	expect("storage", true)
	expect("worker", true)
	farm.Drain()

	farm, address = f.Up(data)
	expect("worker", false)
	run(address, "tr a-z A-Z <text | tee out", made) // from the cache
	if err := os.Remove(path("storage", made)); err != nil {
		f.Fatal(err)
	}
	run(address, "tr a-z A-Z <text >out; cat text", text) // stores it again
	expect("storage", true)
	expect("worker", false)

	if err := os.WriteFile(path("storage", text), []byte("AN input\n"), 0o444); err != nil {
		f.Fatal(err)
	}
	run(address, "cat text; cat text >out", text)
	expect("storage", true)
	farm.Drain()
}
