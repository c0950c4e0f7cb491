package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
)

// BenchmarkOpenNoted opens a store of a million blobs, which takes minutes to make, with and
// without notes of verifications, and writes the notes.
func BenchmarkOpenNoted(b *testing.B) {
	const blobs = 1_000_000
	dir := b.TempDir()
	// As if it had been opened before since the machine was started: nothing is read then.
	if err := os.WriteFile(folder.LockPath(dir), []byte(folder.BootID()), 0o600); err != nil {
		b.Fatal(err)
	}
	var hash [digest.HashSize]byte
	for i := range uint64(blobs) {
		binary.BigEndian.PutUint64(hash[:], i*0x9e3779b97f4a7c15)
		d, _ := digest.FromHash(digest.SHA256, hash, 1)
		path := filepath.Join(dir, BlobPath(d))
		err := os.WriteFile(path, []byte("x"), 0o444)
		if os.IsNotExist(err) {
			_ = os.MkdirAll(filepath.Dir(path), 0o700)
			err = os.WriteFile(path, []byte("x"), 0o444)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	open := func(b *testing.B) *Store {
		s, err := Open(dir, Options{MaxBytes: 1 << 40})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open(b)
	s.files.mu.Lock()
	for _, e := range s.files.index.entries {
		e.proof.at = uint32(time.Now().Unix())
	}
	s.files.proved = true
	s.files.mu.Unlock()
	began := time.Now()
	s.notes.write()
	b.Logf("notes of %d blobs written in %v", blobs, time.Since(began))
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	notes := filepath.Join(dir, "verified")
	for name, path := range map[string]string{"without notes": notes + ".off", "with notes": notes} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if path != notes {
					if err := os.Rename(notes, path); err != nil {
						b.Fatal(err)
					}
				}
				s := open(b)
				b.StopTimer()
				s.notes.loading.Wait()
				fresh := unchangedCount(s)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				if path != notes {
					if err := os.Rename(path, notes); err != nil {
						b.Fatal(err)
					}
				}
				if (fresh == blobs) != (path == notes) {
					b.Fatalf("%d are known to be verified", fresh)
				}
				b.StartTimer()
			}
		})
	}
}

// unchangedCount returns how many blobs are noted as verified.
func unchangedCount(s *Store) (n int) {
	for chunk := range s.files.proofs(notesChunk) {
		n += len(chunk)
	}
	return n
}

// BenchmarkVouch measures how long an action that read 1000 verified blobs waits at its end.
func BenchmarkVouch(b *testing.B) {
	s := storeOpen(b, b.TempDir(), Options{})
	var ds []digest.Digest
	for i := range 1000 {
		ds = append(ds, storePut(b, s, fmt.Sprint(i)))
	}
	for b.Loop() {
		v := s.verifier.Vouch()
		for _, d := range ds {
			v.Used(d)
		}
		if err := v.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}

// BenchmarkNotes writes and loads notes of a million blobs, without their files.
func BenchmarkNotes(b *testing.B) {
	const blobs = 1_000_000
	s := storeOpen(b, b.TempDir(), Options{})
	var hash [digest.HashSize]byte
	reset := func() {
		x := newIndex(1<<40, blobs)
		for i := range uint64(blobs) {
			binary.BigEndian.PutUint64(hash[:], i*0x9e3779b97f4a7c15)
			d, _ := digest.FromHash(digest.SHA256, hash, 1)
			x.load(d, 1, 0)
			x.entries[d].proof.mark = i
		}
		s.files.index = x
	}
	reset()
	for _, e := range s.files.index.entries {
		e.proof.at = 1
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			s.files.proved = true
			s.notes.write()
		}
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			reset()
			b.StartTimer()
			if got := s.notes.load(); got != blobs {
				b.Fatalf("%d are known", got)
			}
		}
	})
	s.files.index = newIndex(1<<40, 0)
}
