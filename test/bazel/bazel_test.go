package bazel

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestBazel builds and tests a real workspace through a farm with Debian's bazel: first from
// scratch, then again after "bazel clean", then downloading only requested outputs, and finally
// with build events.
func TestBazel(t *testing.T) {
	t.Parallel()
	bazel, workspace := Debian(t), Workspace(t)
	hang := "3217." + strconv.Itoa(os.Getpid())
	flags := []string{
		"--config=remote", "--keep_going", "--test_env=HANG_SECONDS=" + hang,
		"--remote_executor=" + startFarm(programs.New(t, programs.OwnSandbox)),
	}
	c := New(t, bazel, workspace, flags...)

	built := false
	t.Run("build", func(t *testing.T) {
		r := c.Build(t, "//...")
		built = true
		ExpectRunners(t, r, "remote")
		if n := r.Count("CppCompile"); n < 70 {
			t.Errorf("%d compilations, want at least 70", n)
		}
		expectGenrules(t, workspace)
		ExpectTree(t, workspace)
	})
	if !built {
		t.FailNow()
	}
	t.Run("test", func(t *testing.T) {
		expectTests(t, c, false)
		programs.ExpectNoProcess(t, "sleep", hang)
	})
	t.Run("rebuild", func(t *testing.T) {
		before := OutputDigests(t, workspace)
		c.Clean(t)
		r := c.Build(t, "//...")
		ExpectRunners(t, r, "remote cache hit")
		if after := OutputDigests(t, workspace); !slices.Equal(before, after) {
			t.Errorf("outputs changed by a rebuild from the cache:\n%s\nbefore:\n%s",
				strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	})
	t.Run("test again", func(t *testing.T) { expectTests(t, c, true) })
	t.Run("download minimal", func(t *testing.T) {
		c.Clean(t)
		expectMinimal(t, c.With("--remote_download_minimal"))
	})
	t.Run("events", func(t *testing.T) { testEvents(t, c) })
}

// TestOldBazel builds a part of the workspace with bazel 2.1.0, which sets the platform only on the
// Command. The farm's worker has a property: an action that asks for it runs, and an action that
// asks for another value is refused with the name of the property. Finally it publishes build
// events.
func TestOldBazel(t *testing.T) {
	t.Parallel() // each Bazel waits much for its farm
	bazel, workspace := Old(t), Workspace(t)
	f := programs.New(t, programs.OwnSandbox).With("FORERUNNER_MATCH_GRACE=5s")
	c := New(t, bazel, workspace, "--config=remote", "--remote_executor="+startFarm(f, "--platform", "pool=cellar"))
	c.startup = append(c.startup, "--nosystem_rc")
	const platform = "--remote_default_exec_properties=pool="
	targets := []string{"//third_party/zstd", "//trees/...", "//genrules/...", platform + "cellar"}

	r := c.Build(t, targets...)
	ExpectRunners(t, r, "remote")
	if n := r.Count("CppCompile"); n < 30 {
		t.Errorf("%d compilations, want at least 30", n)
	}
	expectGenrules(t, workspace)
	ExpectTree(t, workspace)

	c.Clean(t)
	r = c.Build(t, targets...)
	ExpectRunners(t, r, "remote cache hit")

	r = c.Run(t, "build", "//genrules:inputless", platform+"attic")
	if r.ExitCode == 0 || !strings.Contains(r.Output, "no worker has pool=attic") {
		t.Errorf("an action for pool=attic: exit code %d, want a failure that names the property:\n%s",
			r.ExitCode, r.Output)
	}
	// Old Bazel uploads the files that events name with calls that are cancelled at the end of the
	// build. In the background, or after a broken connection, that would end some builds and some of
	// its servers, so it uploads no files.
	t.Run("events", func(t *testing.T) { testEvents(t, c, localFiles) })
}

// expectMinimal builds with a client that has nothing local and downloads nothing: all results come
// from the cache, and actions that run again take their inputs from the farm.
func expectMinimal(t *testing.T, c *Client) {
	t.Helper()
	r := c.Build(t, "//third_party/...", "//schema/...", "//genrules/...")
	ExpectRunners(t, r, "remote cache hit")
	expectNotDownloaded(t, c.workspace, "")

	r = c.Build(t, "//genrules:big_size", "--action_env=ROUND=2")
	ExpectRunners(t, r, "remote")
	expectNotDownloaded(t, c.workspace, "")

	r = c.Run(t, "test", "//schema:inventory_test")
	if got := r.Tests["//schema:inventory_test"]; r.ExitCode != 0 || len(got) != 1 || !got[0].ExecutionInfo.CachedRemotely {
		t.Errorf("bazel test: exit code %d, results %v, want one from the cache", r.ExitCode, got)
	}

	c.Clean(t)
	r = c.Build(t, "//genrules:big_size", "--remote_download_toplevel")
	ExpectRunners(t, r, "remote cache hit")
	expectNotDownloaded(t, c.workspace, "genrules/big_size.txt")
	ExpectFile(t, c.workspace, "genrules/big_size.txt", strconv.Itoa(bigSize)+"\n")
}

// expectNotDownloaded fails the test for each regular output below bazel-bin that an action made,
// except a requested one.
func expectNotDownloaded(t *testing.T, workspace, but string) {
	t.Helper()
	bin, err := filepath.EvalSymlinks(filepath.Join(workspace, "bazel-bin"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(bin, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(bin, path)
		if rel != but && slices.Contains([]string{".a", ".o", ".h", ".txt"}, filepath.Ext(rel)) {
			t.Errorf("%s was downloaded", rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startFarm starts "forerunner up" with two slots and returns the endpoint for bazel. When the test
// ends the farm is asked to drain; it must exit with 0 and leave no mount.
func startFarm(f *programs.Test, args ...string) string {
	f.Helper()
	farm, address := f.Up(filepath.Join(f.Dir, "data"), append([]string{"--http", freeport.Address(f.T)}, args...)...)
	f.Cleanup(farm.Drain)
	return "grpc://" + address
}
