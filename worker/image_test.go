package worker

import (
	"fmt"
	"testing"
	"time"
)

// TestRootsWithAnImage runs commands in roots of which a metadata image shows a part. They must see
// the same content, write to copies of their own, and their reads must be reported, including those
// from a mount namespace of their own.
func TestRootsWithAnImage(t *testing.T) {
	f := newFarm(t)
	in := func(own string) tree {
		files := tree{"own": own, "sdk/bin/tool": executable("#!/bin/sh\ncat sdk/lib7/file\n")}
		for i := range 300 {
			files[fmt.Sprintf("sdk/lib%d/file", i)] = fmt.Sprintf("library %d", i)
		}
		return files
	}
	for i := range 2 {
		assertOK(t, f.run(t, spec{inputs: in(fmt.Sprint(i)), shell: "cat sdk/*/file > /dev/null"}))
	}
	for deadline := time.Now().Add(time.Minute); f.roots.Images() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is no metadata image")
		}
	}
	sdk := f.reads.total()
	for i := range 3 {
		r := f.run(t, spec{
			inputs: in(fmt.Sprint("third ", i)),
			shell:  "sdk/bin/tool; cat own; ls sdk | wc -l; echo changed > sdk/lib8/file; mv sdk/lib9 out; cat out/file",
			paths:  []string{"out", "sdk/lib8/file", "sdk/lib1/file"},
		})
		assertOK(t, r)
		if got, want := string(r.GetResult().GetStdoutRaw()), fmt.Sprintf("library 7third %d301\nlibrary 9", i); got != want {
			t.Errorf("stdout is %q, want %q", got, want)
		}
		// The tool, the file that it prints, own, and the moved file; "echo" truncates the file
		// that it writes to.
		if use := inputUse(t, r); use.GetFilesRead() < 4 || use.GetFilesRead() > 5 {
			t.Errorf("input use is %v", use)
		}
		if n := len(r.GetResult().GetOutputFiles()); n != 2 {
			t.Errorf("%d output files", n)
		}
		if n := len(r.GetResult().GetOutputDirectories()); n != 1 {
			t.Errorf("%d output directories", n)
		}
	}
	// Of each action its root, its command and its own file.
	if n := f.reads.total() - sdk; n > 3*3 {
		t.Errorf("%d blobs were read from storage", n)
	}
}
