package worker

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/vfs"
)

// scriptsTried is how many random scripts are tried, each on a tree and some edits of it.
const (
	scriptsTried = 40
	scriptEdits  = 4
)

// TestReuseOfScripts is TestReuseProof with commands that do to their inputs what compilers
// do not: they move, link, remove, list and change them, and have them as outputs.
func TestReuseOfScripts(t *testing.T) {
	const seed = 20261121
	s := &scripts{rand.New(rand.NewPCG(seed, 2))}
	spares, _ := newFarmThatReuses(t)
	fresh := newFarmOn(t, vfs.Options{Method: vfs.FUSE})
	var reused, run int
	for range scriptsTried {
		inputs, script := s.folder(2), s.script()
		for i := range 1 + scriptEdits {
			if i > 0 {
				s.edit(inputs)
			}
			action := spec{inputs: flat(inputs), shell: script, paths: []string{"a", "b", "o"}}
			r := spares.run(t, action)
			if reusedFrom(t, r) == nil {
				run++
				continue
			}
			reused++
			if got, want := outcome(r), outcome(fresh.run(t, action)); !proto.Equal(got, want) {
				t.Fatalf("%s\non %v: reused\n%v\nbut a run makes\n%v", script, action.inputs, got, want)
			}
		}
	}
	t.Logf("%d actions: %d reused and compared, %d run", reused+run, reused, run)
	if total := reused + run; reused < total/10 || run < total/3 {
		t.Errorf("%d reused, %d run: that proves little", reused, run)
	}
}

// scripts makes trees and scripts at random, of few names, so that they meet.
type scripts struct{ random *rand.Rand }

var scriptNames = []string{"a", "b", "c", "d"}

func (s *scripts) name() string { return scriptNames[s.random.IntN(len(scriptNames))] }

// path is one to three names.
func (s *scripts) path() string {
	p := s.name()
	for range s.random.IntN(3) {
		p = path.Join(p, s.name())
	}
	return p
}

// folder has entries as a tree has them, and folders.
func (s *scripts) folder(depth int) map[string]any {
	dir := map[string]any{}
	for _, name := range scriptNames {
		if s.random.IntN(4) > 0 {
			dir[name] = s.entry(depth)
		}
	}
	return dir
}

func (s *scripts) entry(depth int) any {
	content := strings.Repeat("x\n", s.random.IntN(3)) + fmt.Sprintln(s.random.IntN(3))
	switch n := s.random.IntN(10); {
	case n < 5 && depth > 0:
		return s.folder(depth - 1)
	case n == 5:
		return symlink(s.path())
	case n == 6:
		return executable(content)
	}
	return content
}

// edit changes one entry somewhere.
func (s *scripts) edit(dir map[string]any) {
	name := s.name()
	if below, ok := dir[name].(map[string]any); ok && s.random.IntN(4) > 0 {
		s.edit(below)
		return
	}
	if s.random.IntN(3) == 0 {
		delete(dir, name)
	} else {
		dir[name] = s.entry(1)
	}
}

// silent is for commands that process files in the order of inode numbers, which are random.
const silent = " 2>/dev/null"

// script returns some steps, each of which runs whether or not the previous one succeeded. The
// output depends only on the inputs.
func (s *scripts) script() string {
	b := strings.Builder{}
	b.WriteString("exec 2>&1\n")
	for range 1 + s.random.IntN(3) {
		p, q := s.path(), s.path()
		commands := []string{
			"cat " + p, "ls -A " + p, "stat -c '%s %a %F' " + p, "test -e " + p + " && echo yes", "readlink " + p,
			"find " + p + " -name a | sort", "find " + p + " -type f -size -3c | sort", "grep -r 1 " + p + " | sort",
			"mv " + p + " " + q, "cp -r " + p + " " + q + silent, "ln -s " + p + " " + q, "ln " + p + " " + q,
			"rm -rf " + p, "rmdir " + p, "mkdir -p " + p, "chmod +x " + p, "echo new >> " + p, "echo new > " + p,
			"mv " + p + " o", "cp -r " + p + " o" + silent, "test -x " + p + " && ./" + p, "cd " + p + " && ls",
		}
		b.WriteString(commands[s.random.IntN(len(commands))] + "\n")
	}
	b.WriteString("true\n")
	return b.String()
}

// flat names everything in dir by its path.
func flat(dir map[string]any) tree {
	out := tree{}
	for name, v := range dir {
		below, ok := v.(map[string]any)
		if !ok {
			out[name] = v
			continue
		}
		if len(below) == 0 {
			out[name+"/"] = nil
		}
		for p, v := range flat(below) {
			out[path.Join(name, p)+strings.Repeat("/", len(p)-len(strings.TrimSuffix(p, "/")))] = v
		}
	}
	return out
}
