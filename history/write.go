package history

import (
	"errors"
	"io"
	"os"
	"slices"
	"sort"
)

// A file receives the blocks of a segment.
type file interface {
	io.WriterAt
	Sync() error
	Close() error
}

// createFile creates the file of a segment. After an error there is no file: one without its magic
// would count as one of another format.
func createFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(magic), 0); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// write writes the full blocks or, with all, all blocks. It seals the segments that get no more
// records. What cannot be written waits for the next call.
func (s *Store) write(all bool) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	var todo []*segment
	for i, g := range s.segments {
		if len(g.pending) > 0 || all && g.isUnsynced || g.index != nil && g.path != "" && i < len(s.segments)-1 {
			todo = append(todo, g)
		}
	}
	var current *segment
	if n := len(s.segments); n > 0 {
		current = s.segments[n-1]
	}
	s.mu.Unlock()
	var failure error
	path := ""
	for _, g := range todo {
		err := s.writeBlocks(g, all || g != current)
		if err == nil && g != current && g.path != "" {
			err = s.seal(g)
		}
		if err != nil {
			failure, path = err, g.path
			s.makeRoom(g)
		}
	}
	if failure != nil || all {
		s.wrote(path, failure)
	}
}

// writeBlocks writes the blocks of a segment. It writes the last one, which may still grow, only
// with all.
func (s *Store) writeBlocks(g *segment, all bool) error {
	for {
		s.mu.Lock()
		n := len(g.pending)
		if n == 0 || n == 1 && !all && len(g.pending[0]) < blockBytes {
			s.mu.Unlock()
			break
		}
		raw := g.pending[0]
		if n == 1 { // the next record begins a new block
			g.pending = append(g.pending, s.blockLocked())
		}
		s.mu.Unlock()
		offset, err := s.writeBlock(g, raw)
		if err != nil {
			return err
		}
		s.mu.Lock()
		g.index.offsets = append(g.index.offsets, offset)
		g.pending = g.pending[1:]
		s.freeLocked(raw)
		if len(g.pending) == 1 && len(g.pending[0]) == 0 {
			s.freeLocked(g.pending[0])
			g.pending = nil
		}
		g.written++
		s.pending -= int64(len(raw))
		s.mu.Unlock()
	}
	if !all || g.file == nil || !g.isUnsynced {
		return nil
	}
	g.isUnsynced = false // a second Sync after an error would succeed, whatever was lost
	return g.file.Sync()
}

// blockLocked returns memory for a block.
func (s *Store) blockLocked() []byte {
	if n := len(s.free); n > 0 {
		block := s.free[n-1]
		s.free = s.free[:n-1]
		return block
	}
	return make([]byte, 0, blockBytes+blockBytes/4)
}

// freeLocked keeps the memory of a block for reuse. Nothing may read the block any more.
func (s *Store) freeLocked(block []byte) {
	if len(s.free) < mostFree {
		s.free = append(s.free, block[:0])
	}
}

// writeBlock writes a block and returns its offset.
func (s *Store) writeBlock(g *segment, raw []byte) (uint32, error) {
	block := packed(raw, &s.packed)
	offset := g.size
	if g.path == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.data == nil {
			g.data = make([]byte, len(magic), min(s.options.segmentBytes()+blockBytes, mostData))
		}
		g.data = append(g.data, block...)
		g.size += int64(len(block))
		return uint32(offset), nil
	}
	if g.file == nil {
		f, err := s.create(g.path)
		if err != nil {
			return 0, err
		}
		g.file = f
	}
	if _, err := g.file.WriteAt(block, offset); err != nil {
		return 0, err
	}
	g.isUnsynced = true
	s.mu.Lock()
	g.size += int64(len(block))
	s.mu.Unlock()
	return uint32(offset), nil
}

// makeRoom gives up the records of a segment that cannot be written, if there is no room for later
// ones. These go to another file.
func (s *Store) makeRoom(g *segment) {
	s.mu.Lock()
	isBehind := s.isBehindLocked()
	s.mu.Unlock()
	if isBehind {
		s.abandon(g)
	}
}

// abandon gives up the records of a segment that are not written.
func (s *Store) abandon(g *segment) {
	s.mu.Lock()
	if len(g.pending) == 0 {
		s.mu.Unlock()
		return
	}
	for _, block := range g.pending {
		s.pending -= int64(len(block))
		s.freeLocked(block)
	}
	g.pending, g.sealed = nil, true
	g.index.settle()
	kept := sort.Search(g.rows, func(row int) bool { return g.index.blocks[row] >= uint32(g.written) })
	n := s.missLocked(g.rows - kept)
	g.rows = kept
	g.index.cut(kept)
	if kept == 0 {
		s.segments = slices.DeleteFunc(slices.Clone(s.segments), func(of *segment) bool { return of == g })
	}
	s.mu.Unlock()
	s.log(n)
	if kept == 0 {
		_ = g.remove() // as of a file that cannot be written
	}
}

// seal writes the index of a segment that gets no more records, and frees the memory of its
// content.
func (s *Store) seal(g *segment) error {
	s.mu.Lock()
	g.sealed = true
	if g.index != nil {
		g.index.settle()
	}
	s.mu.Unlock()
	if g.index == nil || g.rows == 0 {
		return nil
	}
	var errs []error
	if g.file != nil {
		errs = append(errs, g.file.Sync(), g.file.Close())
		g.file, g.isUnsynced = nil, false
	}
	size, err := writeIndex(g.path, g.index)
	if err == nil {
		s.mu.Lock()
		g.index, g.indexSize = nil, size
		s.mu.Unlock()
	}
	return errors.Join(append(errs, err)...)
}
