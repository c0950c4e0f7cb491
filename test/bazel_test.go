package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestBazel builds and tests a real workspace through a farm with Debian's bazel: first from
// nothing, then again after "bazel clean", then downloading nothing but what is asked for.
func TestBazel(t *testing.T) {
	bazel, workspace := debianBazel(t), bazelWorkspace(t)
	hang := "3217." + strconv.Itoa(os.Getpid())
	flags := []string{
		"--config=remote", "--keep_going", "--test_env=HANG_SECONDS=" + hang,
		"--remote_executor=" + startFarm(t),
	}
	c := newBazelClient(t, bazel, workspace, flags...)

	built := false
	t.Run("build", func(t *testing.T) {
		r := c.build(t, "//...")
		built = true
		expectRunners(t, r, "remote")
		if n := r.count("CppCompile"); n < 100 {
			t.Errorf("%d compilations, want at least 100", n)
		}
		expectGenrules(t, workspace)
		expectTree(t, workspace)
	})
	if !built {
		t.FailNow()
	}
	t.Run("test", func(t *testing.T) {
		expectTests(t, c, false)
		expectNoProcess(t, "sleep", hang)
	})
	t.Run("rebuild", func(t *testing.T) {
		before := outputDigests(t, workspace)
		c.clean(t)
		r := c.build(t, "//...")
		expectRunners(t, r, "remote cache hit")
		if after := outputDigests(t, workspace); !slices.Equal(before, after) {
			t.Errorf("outputs changed by a rebuild from the cache:\n%s\nbefore:\n%s",
				strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	})
	t.Run("test again", func(t *testing.T) { expectTests(t, c, true) })
	c.shutdown(t)
	t.Run("download minimal", func(t *testing.T) {
		minimal := newBazelClient(t, bazel, workspace, append(flags, "--remote_download_minimal")...)
		expectMinimal(t, minimal)
	})
}

// TestOldBazel builds a part of the workspace with bazel 2.1.0, which sets the platform on the
// Command alone. The farm's worker has a property: what asks for it runs, and what asks for
// another value is refused with the name of the property.
func TestOldBazel(t *testing.T) {
	bazel, workspace := oldBazel(t), bazelWorkspace(t)
	c := newBazelClient(t, bazel, workspace, "--config=remote",
		"--remote_executor="+startFarm(t, "--platform", "pool=cellar"))
	c.startup = append(c.startup, "--nosystem_rc")
	const platform = "--remote_default_exec_properties=pool="
	targets := []string{"//third_party/zstd", "//trees/...", "//genrules/...", platform + "cellar"}

	r := c.build(t, targets...)
	expectRunners(t, r, "remote")
	if n := r.count("CppCompile"); n < 30 {
		t.Errorf("%d compilations, want at least 30", n)
	}
	expectGenrules(t, workspace)
	expectTree(t, workspace)

	c.clean(t)
	r = c.build(t, targets...)
	expectRunners(t, r, "remote cache hit")

	r = c.run(t, "build", "//genrules:inputless", platform+"attic")
	if r.exitCode == 0 || !strings.Contains(r.output, "no worker has pool=attic") {
		t.Errorf("an action for pool=attic: exit code %d, want a failure that names the property:\n%s",
			r.exitCode, r.output)
	}
}

// expectMinimal builds with a client that has nothing local and downloads nothing: everything
// comes from the cache, and what it executes anew takes its inputs from the farm.
func expectMinimal(t *testing.T, c *bazelClient) {
	t.Helper()
	r := c.build(t, "//third_party/...", "//schema/...", "//genrules/...")
	expectRunners(t, r, "remote cache hit")
	expectNotDownloaded(t, c.workspace, "")

	r = c.build(t, "//genrules:big_size", "--action_env=ROUND=2")
	expectRunners(t, r, "remote")
	expectNotDownloaded(t, c.workspace, "")

	r = c.run(t, "test", "//schema:inventory_test")
	if got := r.tests["//schema:inventory_test"]; r.exitCode != 0 || len(got) != 1 || !got[0].ExecutionInfo.CachedRemotely {
		t.Errorf("bazel test: exit code %d, results %v, want one from the cache", r.exitCode, got)
	}

	c.clean(t)
	r = c.build(t, "//genrules:big_size", "--remote_download_toplevel")
	expectRunners(t, r, "remote cache hit")
	expectNotDownloaded(t, c.workspace, "genrules/big_size.txt")
	expectFile(t, c.workspace, "genrules/big_size.txt", strconv.Itoa(bigSize)+"\n")
}

// expectNotDownloaded fails the test for each regular output below bazel-bin that an action made,
// but for one that was asked for.
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
