package worker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/vfs"
)

const (
	// proofActions is how many compile actions are compared; proofVariable asks for
	// another number.
	proofActions  = 60
	proofVariable = "FORERUNNER_TEST_REUSE_ACTIONS"
)

// TestReuseProof edits a C program at random, compiles its sources after each edit, and
// compiles each whose run was spared again, on a worker that spares none: every output must
// be the same to the byte.
func TestReuseProof(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		unavailable(t, fmt.Errorf("%w: %w", vfs.ErrUnavailable, err))
	}
	want := proofActions
	if s := os.Getenv(proofVariable); s != "" {
		var err error
		want, err = strconv.Atoi(s)
		check(t, err)
	}
	const seed = 20261121
	program := newProgram(rand.New(rand.NewPCG(seed, 1)))
	spares, _ := newFarmThatReuses(t)
	fresh := newFarmOn(t, vfs.Options{Method: vfs.FUSE})
	var reused, run, failed int
	for reused+run < want {
		edits := []string{program.edit(), program.edit(), program.edit()}
		for i := range proofSources {
			s := spec{inputs: program.files, args: compile(i), paths: []string{"out/o", "out/d"}}
			r := spares.run(t, s)
			if reusedFrom(t, r) == nil {
				run++
				if r.GetResult().GetExitCode() != 0 {
					failed++
				}
				continue
			}
			reused++
			if got, want := outcome(r), outcome(fresh.run(t, s)); !proto.Equal(got, want) {
				t.Fatalf("source %d after %q: reused\n%v\nbut a run makes\n%v", i, edits, got, want)
			}
		}
	}
	t.Logf("%d actions: %d reused and compared, %d run, of which %d failed", reused+run, reused, run, failed)
	if reused < want/5 || run-failed < want/5 {
		t.Errorf("%d reused, %d run, %d of them in vain: that proves little", reused, run, failed)
	}
}

// outcome returns the result of a run without the fields that say how it was made.
func outcome(r *repb.ExecuteResponse) *repb.ActionResult {
	result := proto.CloneOf(r.GetResult())
	result.ExecutionMetadata = nil
	return result
}

// compile returns the command for a source. It searches several folders for headers, one of which
// may be missing, and writes the names of the files that it has read to out/d.
func compile(source int) []string {
	return []string{
		"gcc", "-c", "-Wall", "-iquote", ".", "-I", "inc0", "-I", "inc1", "-isystem", "inc2", "-I", "gen",
		"-MD", "-MF", "out/d", "-o", "out/o", sourceFile(source),
	}
}

// A program is the tree of a C program that can be edited at random.
type program struct {
	random *rand.Rand
	files  tree
	edits  int
}

const (
	proofSources = 6
	proofHeaders = 12
)

// newProgram makes sources and headers. Each header includes some headers with larger numbers and
// checks whether others exist.
func newProgram(r *rand.Rand) *program {
	p := &program{random: r, files: tree{"src/local.h": "#define LOCAL 1\n", "README": "nobody reads this"}}
	for i := range proofHeaders {
		p.files[path.Join(p.folder(), header(i))] = p.header(i)
	}
	for i := range proofSources {
		p.files[sourceFile(i)] = p.source(i)
	}
	return p
}

func header(i int) string     { return fmt.Sprintf("h%d.h", i) }
func sourceFile(i int) string { return fmt.Sprintf("src/s%d.c", i) }

// folder is a place for a header. "gen" and "src" are seldom one, so that gen comes and goes.
func (p *program) folder() string {
	folders := []string{"inc0", "inc0", "inc1", "inc1", "inc2", "inc2", "gen", "src"}
	return folders[p.random.IntN(len(folders))]
}

func (p *program) header(i int) string {
	p.edits++
	var b strings.Builder
	fmt.Fprintf(&b, "#ifndef H%d\n#define H%d %d\n", i, i, p.edits)
	for range 2 {
		if next := i + 1 + p.random.IntN(4); next < proofHeaders {
			b.WriteString(p.include(next))
		}
	}
	fmt.Fprintf(&b, "static inline int f%d(void) { return %d; }\n#endif\n", i, p.edits)
	return b.String()
}

// include includes a header if it exists, sometimes even if it does not, or only checks whether it
// exists.
func (p *program) include(i int) string {
	switch n := p.random.IntN(20); {
	case n == 0:
		return fmt.Sprintf("#include <%s>\n", header(i))
	case n < 7:
		return fmt.Sprintf("#if __has_include(\"%[1]s\")\n#include \"%[1]s\"\n#endif\n", header(i))
	case n < 10:
		return fmt.Sprintf("#if __has_include(<extra%[1]d.h>)\n#define EXTRA%[1]d 1\n#endif\n", i)
	}
	return fmt.Sprintf("#if __has_include(<%[1]s>)\n#include <%[1]s>\n#endif\n", header(i))
}

func (p *program) source(i int) string {
	p.edits++
	var b strings.Builder
	if p.random.IntN(2) == 0 {
		b.WriteString("#include \"local.h\"\n")
	}
	for range 3 {
		b.WriteString(p.include(p.random.IntN(proofHeaders)))
	}
	fmt.Fprintf(&b, "int sum%d(void) {\n\tint sum = %d;\n", i, p.edits)
	for h := range proofHeaders {
		fmt.Fprintf(&b, "#ifdef H%[1]d\n\tsum += H%[1]d + f%[1]d();\n#endif\n#ifdef EXTRA%[1]d\n\tsum ^= %[1]d;\n#endif\n", h)
	}
	b.WriteString("\treturn sum;\n}\n")
	return b.String()
}

// edit changes one thing and describes the change.
func (p *program) edit() string {
	files := maps.Clone(p.files)
	defer func() { p.files = files }()
	h := p.random.IntN(proofHeaders)
	at, to := p.find(h), path.Join(p.folder(), header(h))
	was := files[at]
	switch p.random.IntN(10) {
	case 0:
		if v, ok := was.(string); ok {
			digit := strings.LastIndexByte(v, ';') - 1 // change a function's return value: the size stays the same
			files[at] = v[:digit] + string('0'+(v[digit]-'0'+1)%10) + v[digit+1:]
		}
		return "edit " + at
	case 1:
		i := p.random.IntN(proofSources)
		files[sourceFile(i)] = p.source(i)
		return "edit " + sourceFile(i)
	case 2: // it may shadow, or be shadowed
		files[to] = p.header(h)
		return "add " + to
	case 3: // maybe it has shadowed another
		delete(files, at)
		return "remove " + at
	case 4:
		delete(files, at)
		if was != nil {
			files[to] = was
		}
		return "rename " + at + " to " + to
	case 5: // a file that is only checked for
		name := path.Join(p.folder(), fmt.Sprintf("extra%d.h", h))
		if files[name] == nil {
			files[name] = "#error nobody includes this\n"
		} else {
			delete(files, name)
		}
		return "add or remove " + name
	case 6:
		files["README"] = fmt.Sprint("edit ", p.random.Int())
		return "edit README"
	case 7: // next to headers
		name := path.Join(p.folder(), fmt.Sprintf("unused%d.h", p.random.IntN(5)))
		files[name] = fmt.Sprint("#error ", p.random.Int())
		return "add " + name
	case 8: // the same, through a link
		if v, ok := was.(string); ok {
			files["real/"+header(h)], files[at] = v, symlink("../real/"+header(h))
		}
		return "link " + at
	}
	if v, ok := was.(string); ok {
		files[at] = executable(v)
	}
	return "chmod " + at
}

// find returns a place of header i, or nothing.
func (p *program) find(i int) string {
	var places []string
	for name := range p.files {
		if path.Base(name) == header(i) && !strings.HasPrefix(name, "real/") {
			places = append(places, name)
		}
	}
	if len(places) == 0 {
		return ""
	}
	slices.Sort(places)
	return places[p.random.IntN(len(places))]
}
