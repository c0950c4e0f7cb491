package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

const (
	// possessionEvery is the interval between writes of changes.
	possessionEvery = time.Second
	// possessionChunk is how many blobs are read while the store's lock is held once.
	possessionChunk = 1024
	// possessionSlack is how much the file may grow, beyond its own size at the last rewrite,
	// before the next rewrite.
	possessionSlack = 16 << 20
)

// A possession knows the blobs of a Store that each instance name has. Each blob has the set of its
// holders in the index, so that it has none once its file has left for any reason.
//
// One file keeps this over a restart; changes are appended. Nothing is synced to the disk. An entry
// that is missing in the file after a crash or a power failure is void: the holder uploads the blob
// again.
type possession struct {
	files *files
	path  string
	log   *zap.Logger

	table   holders.Table   // guarded by files.mu
	changes holders.Changes // guarded by files.mu

	writing sync.Mutex // before files.mu
	file    *os.File   // guarded by writing
	size    int64      // guarded by writing; of the complete part of file
	compact int64      // guarded by writing; the size at which it is rewritten
	ailing  bool       // guarded by writing; the last write failed

	mu     sync.Mutex
	timer  *time.Timer // guarded by mu; of the next write
	closed bool        // guarded by mu
}

// openPossession reads the holders of the blobs in f, which has no other users yet.
func openPossession(f *files, log *zap.Logger) (*possession, error) {
	p := &possession{files: f, path: filepath.Join(f.Dir, holdersName), log: log}
	if err := p.load(); err != nil {
		return nil, fmt.Errorf("read which instance names have which blobs: %w", err)
	}
	f.index.left = p.lostLocked
	if err := p.rewrite(); err != nil {
		return nil, fmt.Errorf("note which instance names have which blobs: %w", err)
	}
	p.schedule()
	return p, nil
}

func (p *possession) load() error {
	file, err := os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return holders.Read(file, func(d digest.Digest, n holders.Name) {
		p.files.mu.Lock()
		defer p.files.mu.Unlock()
		if e := p.files.index.lookup(d); e != nil {
			if s, _, err := p.table.Add(e.holders, n); err == nil {
				e.holders = s
			}
		}
	}, func(d digest.Digest) {
		p.files.mu.Lock()
		defer p.files.mu.Unlock()
		if e := p.files.index.lookup(d); e != nil {
			p.table.Drop(e.holders)
			e.holders = nil
		}
	})
}

// lostLocked is called for each blob with holders whose file leaves.
func (p *possession) lostLocked(d digest.Digest, s *holders.Set) {
	p.table.Drop(s)
	p.changes.Lost(d)
}

// gain records that n has d, of which it has shown all bytes. It does nothing if d no longer
// exists.
func (p *possession) gain(d digest.Digest, n holders.Name) error {
	if d.IsEmptyBlob() {
		return nil
	}
	p.files.mu.Lock()
	defer p.files.mu.Unlock()
	e := p.files.index.lookup(d)
	if e == nil {
		return nil
	}
	s, added, err := p.table.Add(e.holders, n)
	if err != nil {
		return fmt.Errorf("blob %s: %w: %w", d, cas.ErrTooManyHolders, err)
	}
	if e.holders = s; added {
		p.changes.Gained(d, n)
	}
	return nil
}

// has reports whether d exists and n has it.
func (p *possession) has(d digest.Digest, n holders.Name) bool {
	if d.IsEmptyBlob() {
		return true
	}
	p.files.mu.Lock()
	defer p.files.mu.Unlock()
	e := p.files.index.lookup(d)
	return e != nil && !p.files.closed && p.table.Has(e.holders, n)
}

// split returns which of ds n has, and which not, both in their order.
func (p *possession) split(ds []digest.Digest, n holders.Name) (had, missing []digest.Digest) {
	for len(ds) > 0 {
		chunk := ds[:min(len(ds), useChunk)]
		ds = ds[len(chunk):]
		p.files.mu.Lock()
		for _, d := range chunk {
			e := p.files.index.lookup(d)
			if e != nil && p.table.Has(e.holders, n) || d.IsEmptyBlob() {
				had = append(had, d)
			} else {
				missing = append(missing, d)
			}
		}
		p.files.mu.Unlock()
	}
	return had, missing
}

// schedule writes changes some time later, and again.
func (p *possession) schedule() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.timer = time.AfterFunc(possessionEvery, func() { p.write(); p.schedule() })
	}
}

// close writes for the last time. Nil: nothing does.
func (p *possession) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.timer.Stop()
	p.mu.Unlock()
	p.write()
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.file.Close()
}

// write writes changes. If that fails, as on a full disk, the next write rewrites everything.
func (p *possession) write() {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.files.mu.Lock()
	block, closed := p.changes.Take(), p.files.closed
	p.files.mu.Unlock()
	if closed {
		return // another process may have the folder
	}
	var err error
	switch {
	case p.ailing || p.size+int64(len(block)) > p.compact:
		err = p.rewriteLocked()
	case len(block) > 0:
		if _, err = p.file.WriteAt(block, p.size); err == nil {
			p.size += int64(len(block))
		}
	}
	if err != nil && !p.ailing {
		p.log.Warn("cannot save the blobs of instance names; after a restart clients upload some of them again", zap.Error(err))
	}
	p.ailing = err != nil
}

func (p *possession) rewrite() error {
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.rewriteLocked()
}

// rewriteLocked writes a new file with all holders. It includes changes during the rewrite, in
// their order.
func (p *possession) rewriteLocked() error {
	temp := filepath.Join(p.files.TempDir(), "incoming-holders")
	file, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := p.writeAll(file)
	if err == nil {
		err = os.Rename(temp, p.path)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(temp)
		return err
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	p.file, p.size, p.compact = file, size, 2*size+possessionSlack
	return nil
}

func (p *possession) writeAll(file *os.File) (size int64, err error) {
	n, err := file.WriteString(holders.Heading)
	size = int64(n)
	for block := range p.blocks {
		if err != nil {
			return size, err
		}
		n, err = file.Write(block)
		size += int64(n)
	}
	return size, err
}

// blocks yields all that a new file has after its heading.
func (p *possession) blocks(yield func([]byte) bool) {
	f, looked := p.files, 0
	f.mu.Lock()
	p.changes.Restart()
	for d, e := range f.index.entries {
		for n := range p.table.Names(e.holders) {
			p.changes.Gained(d, n)
		}
		if looked++; looked%possessionChunk != 0 {
			continue
		}
		// A map may change while it is walked, if not at the same time.
		block := p.changes.Take()
		f.mu.Unlock()
		if block != nil && !yield(block) {
			return
		}
		f.mu.Lock()
	}
	block := p.changes.Take()
	f.mu.Unlock()
	if block != nil {
		yield(block)
	}
}
