package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// anyMagic begins the magic of every version.
const anyMagic = "forerunner history "

// findFormat finds out the format of a file whose magic is damaged, and writes the magic again.
func (s *Store) findFormat(g *segment, file *os.File, begin string) error {
	if strings.HasPrefix(begin, anyMagic) {
		return fmt.Errorf("%s has %w: start the version that wrote it, or move %s away", g.path, ErrFormat, filepath.Dir(g.path))
	}
	for g.format = formats - 1; g.format >= 0; g.format-- {
		if s.hasBlock(g, file) {
			s.options.Logger.Warn("the beginning of a file of records is damaged and was written again", zap.String("file", g.path))
			_, err := file.WriteAt([]byte(magics[g.format]), 0)
			return err
		}
	}
	return fmt.Errorf("no record: %w", errDamaged)
}

// hasBlock reports whether a block of the segment can be read.
func (s *Store) hasBlock(g *segment, file io.ReaderAt) bool {
	if x, _, err := openIndex(g.path); err == nil {
		defer x.file.Close()
		_ = x.need(offsetsSection) // there are none, then
		for _, offset := range x.offsets {
			if _, _, err := s.readBlock(file, g.format, int64(offset)); err == nil {
				return true
			}
		}
	}
	return s.rebuild(g, file).rows > 0
}

// unreadable returns the segment of a file of which nothing can be read; nil: it is not a segment.
// The file is removed when it is as old as if it had records.
func (s *Store) unreadable(path string, err error) *segment {
	s.options.Logger.Warn("a file cannot be read: its records are lost, and all others are there", zap.String("file", path), zap.Error(err))
	number, err := numberIn(path)
	if err != nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	changed := info.ModTime().UnixMilli()
	return &segment{number: number, path: path, size: info.Size(), first: changed, last: changed, sealed: true}
}

// removeStrays removes indexes without a segment: another segment may get the number.
func (s *Store) removeStrays() error {
	names, err := filepath.Glob(filepath.Join(s.folder, "*"+indexSuffix))
	if err != nil {
		return err
	}
	for _, name := range names {
		segment := strings.TrimSuffix(name, indexSuffix) + segmentSuffix
		if _, err := os.Lstat(segment); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.options.Logger.Warn("the records of an index are gone: the index was removed", zap.String("file", name))
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// rebuild reads all blocks. It skips a damaged one if it knows where the next one begins, and ends
// where no further one can be read.
func (s *Store) rebuild(g *segment, file io.ReaderAt) *segment {
	again := &segment{index: newIndex(), size: int64(len(magic))}
	for at := again.size; ; {
		raw, next, err := s.readBlock(file, g.format, at)
		if errors.Is(err, errDamaged) && next > at {
			at = next
			continue
		}
		if err != nil {
			return again
		}
		if at > again.size {
			s.tellDamage(g, errDamaged)
		}
		block := uint32(len(again.index.offsets))
		for item := 0; item < len(raw); {
			r := &historypb.Record{}
			encoded, ok := itemAt(raw, item)
			if !ok || proto.Unmarshal(encoded, r) != nil {
				return again // the block was written like this: the rest is useless
			}
			again.note(rowOf(r), block, uint32(item))
			item += FreeBytes + len(encoded)
		}
		again.index.offsets = append(again.index.offsets, uint32(at))
		at, again.size = next, next
	}
}

// use gives a segment its rebuilt index, which stays in memory if it cannot be written now.
func (s *Store) use(g, rebuilt *segment) {
	rebuilt.index.settle()
	size, err := writeIndex(g.path, rebuilt.index)
	if err != nil {
		s.options.Logger.Warn("an index of records cannot be written: it stays in memory", zap.String("file", indexPath(g.path)), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.rows, g.first, g.last = rebuilt.rows, rebuilt.first, rebuilt.last
	if err != nil {
		g.index = rebuilt.index
		return
	}
	g.indexSize, g.isChecked = size, true
}

// indexOf opens the index of a segment. The first time it checks all of it, and rebuilds a damaged
// one.
func (s *Store) indexOf(g *segment) (*indexFile, error) {
	x, err := s.checkedIndex(g)
	if err == nil {
		return x, nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if x, err = s.checkedIndex(g); err == nil { // another search has rebuilt it
		return x, nil
	}
	file, failed := os.Open(g.path)
	if failed != nil {
		return nil, failed
	}
	defer file.Close()
	s.tellIndex(g, err)
	rebuilt := s.rebuild(g, file)
	s.use(g, rebuilt)
	return wholeIndex(rebuilt.index), nil
}

// checkedIndex opens the index of a segment, and checks it unless it was checked before.
func (s *Store) checkedIndex(g *segment) (*indexFile, error) {
	x, _, err := openIndex(g.path)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	isChecked := g.isChecked
	s.mu.Unlock()
	if isChecked {
		return x, nil
	}
	if err := x.check(); err != nil {
		return nil, errors.Join(err, x.file.Close())
	}
	s.mu.Lock()
	g.isChecked = true
	s.mu.Unlock()
	return x, nil
}

// tellIndex logs why an index is rebuilt, unless there is none.
func (s *Store) tellIndex(g *segment, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		s.options.Logger.Warn("an index of records is damaged and was rebuilt", zap.String("file", indexPath(g.path)), zap.Error(err))
	}
}

// tellDamage logs the first of a segment's records that cannot be read.
func (s *Store) tellDamage(g *segment, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGivenUp) {
		return
	}
	s.mu.Lock()
	isFirst := !g.isDamaged
	g.isDamaged = true
	s.mu.Unlock()
	if isFirst {
		s.options.Logger.Warn("a part of a file of records is damaged: its records are lost, and all others are there",
			zap.String("file", g.path), zap.Error(err))
	}
}
