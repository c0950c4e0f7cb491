package rot

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/test/programs"
)

// A rotFault damages something. It returns false if there was nothing to damage, as when a file has
// gone meanwhile.
type rotFault struct {
	name string
	do   func(random *rand.Rand) (bool, error)
}

// inject does something harmful after each result, until there are no more.
func (t *rotTest) inject(faults []rotFault) {
	for range t.done {
		for range 1 + t.random.IntN(2) {
			fault := faults[t.random.IntN(len(faults))]
			did, err := fault.do(t.random)
			switch {
			case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESTALE), errors.Is(err, errNoPlace):
			case err != nil:
				t.Errorf("seed %d: %s: %v", t.seed, fault.name, err)
			case did:
				t.mu.Lock()
				t.faults[fault.name]++
				t.mu.Unlock()
			}
		}
	}
}

// written are faults by writes, which the kernel knows of.
func (t *rotTest) written() []rotFault {
	return []rotFault{
		{"flipped in a worker", func(r *rand.Rand) (bool, error) { return flip(r, t.pick(r, t.anyWorker(r).cas())) }},
		{"flipped in the storage", func(r *rand.Rand) (bool, error) { return flip(r, t.pick(r, t.storage.cas())) }},
		{"truncated in a worker", func(r *rand.Rand) (bool, error) { return truncate(r, t.pick(r, t.anyWorker(r).cas())) }},
		{"truncated in the storage", func(r *rand.Rand) (bool, error) { return truncate(r, t.pick(r, t.storage.cas())) }},
		{"swapped in a worker", func(r *rand.Rand) (bool, error) { return t.swap(r, t.anyWorker(r).cas()) }},
		{"swapped in the storage", func(r *rand.Rand) (bool, error) { return t.swap(r, t.storage.cas()) }},
		{"flipped in the action cache", func(r *rand.Rand) (bool, error) { return flip(r, t.pick(r, t.storage.actions())) }},
		{"flipped tool of all actions in a worker", func(r *rand.Rand) (bool, error) { return flip(r, t.toolBlob(r, t.anyWorker(r).cas())) }},
		{"flipped tool of all actions in the storage", func(r *rand.Rand) (bool, error) { return flip(r, t.toolBlob(r, t.storage.cas())) }},
	}
}

// linked are those, and some in input roots of hard links.
func (t *rotTest) linked() []rotFault {
	return append(t.written(), slices.Repeat([]rotFault{
		{"flipped in an input root of hard links", func(r *rand.Rand) (bool, error) { return flip(r, t.linkedInput(r)) }},
	}, 4)...)
}

// rotted returns faults of disks that are not reported.
func (t *rotTest) rotted() []rotFault {
	rot := func(p func(*rand.Rand) *rotProgram, path func(*rand.Rand, *rotProgram) string) func(*rand.Rand) (bool, error) {
		return func(r *rand.Rand) (bool, error) {
			program := p(r)
			name := path(r, program)
			info, err := os.Stat(name)
			if err != nil || info.Size() == 0 {
				return false, err
			}
			seen, err := program.disk.rot(name, r.Int64N(info.Size()), 1<<r.IntN(8))
			if err == nil && !seen {
				t.mu.Lock()
				t.faults["(of those on disks, hidden by what the kernel held in memory)"]++
				t.mu.Unlock()
			}
			return true, err
		}
	}
	storage := func(*rand.Rand) *rotProgram { return t.storage }
	blob := func(r *rand.Rand, p *rotProgram) string { return t.pick(r, p.cas()) }
	tool := func(r *rand.Rand, p *rotProgram) string { return t.toolBlob(r, p.cas()) }
	return []rotFault{
		{"rotted on the disk of a worker", rot(t.anyWorker, blob)},
		{"rotted on the disk of the storage", rot(storage, blob)},
		{"rotted tool of all actions on the disk of a worker", rot(t.anyWorker, tool)},
		{"rotted tool of all actions on the disk of the storage", rot(storage, tool)},
		{"rotted on the disk of the action cache", rot(storage, func(r *rand.Rand, p *rotProgram) string { return t.pick(r, p.actions()) })},
	}
}

func (t *rotTest) anyWorker(r *rand.Rand) *rotProgram { return t.workers[r.IntN(len(t.workers))] }

// pick returns any file of a store; "" if there is none.
func (t *rotTest) pick(r *rand.Rand, dir string) string {
	files := filesOf(t.T, dir)
	if len(files) == 0 {
		return ""
	}
	return files[r.IntN(len(files))]
}

// toolBlob returns the blob of a tool, as it is or would be.
func (t *rotTest) toolBlob(r *rand.Rand, dir string) string {
	return filepath.Join(dir, disk.BlobPath(digest.Of(digest.SHA256, t.tools.content[anyTool(r)])))
}

// linkedInput returns an input of a linked folder, which an action has or the next ones will.
func (t *rotTest) linkedInput(r *rand.Rand) string {
	for range 50 {
		var folders []string
		for _, w := range t.workers {
			for _, pattern := range []string{"upper/*/lower/tool", "upper/*/*/tool", "upper/*/*/*/tool"} {
				some, _ := filepath.Glob(filepath.Join(w.disk.dir, pattern))
				folders = append(folders, some...)
			}
		}
		if len(folders) > 0 {
			return filepath.Join(folders[r.IntN(len(folders))], toolName(anyTool(r)))
		}
		time.Sleep(programs.PollInterval)
	}
	return ""
}

// flip flips one bit of a file, by writing to it.
func flip(r *rand.Rand, path string) (bool, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	var b [1]byte
	at := r.Int64N(info.Size())
	if _, err := file.ReadAt(b[:], at); err != nil {
		return false, err
	}
	b[0] ^= 1 << r.IntN(8)
	_, err = file.WriteAt(b[:], at)
	return err == nil, err
}

func truncate(r *rand.Rand, path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return false, err
	}
	return true, os.Truncate(path, r.Int64N(info.Size()))
}

// swap gives two blobs of equal size each other's names.
func (t *rotTest) swap(r *rand.Rand, dir string) (bool, error) {
	one := t.pick(r, dir)
	_, size, _ := strings.Cut(filepath.Base(one), "-")
	other := ""
	for _, path := range filesOf(t.T, dir) {
		if path != one && strings.HasSuffix(path, "-"+size) && (other == "" || r.IntN(8) == 0) {
			other = path
		}
	}
	if other == "" {
		return false, nil
	}
	temp := filepath.Join(dir, "tmp", fmt.Sprint("swap-", r.Uint64()))
	if err := os.Rename(one, temp); err != nil {
		return false, err
	}
	err := os.Rename(other, one)
	if err == nil {
		return true, os.Rename(temp, other)
	}
	return false, errors.Join(err, os.Rename(temp, one))
}
