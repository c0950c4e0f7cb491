package disk

import (
	"sync"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// stuck are files that are in their places although the folder does not have them any more, since
// they could not be removed: they are immutable, or the file system was made read-only. Readers of
// files by path, such as overlays, continue to read them.
type stuck struct {
	mu    sync.Mutex
	files map[digest.Digest]struct{} // guarded by mu
}

func (s *stuck) add(k digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = map[digest.Digest]struct{}{}
	}
	s.files[k] = struct{}{}
}

// remove reports whether k existed.
func (s *stuck) remove(k digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.files[k]
	delete(s.files, k)
	return was
}

func (s *stuck) has(k digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.files[k]
	return is
}

// stays says that the leaving file of k could not be removed.
func (f *files) stays(k digest.Digest, err error) {
	f.stuck.add(k)
	f.log.Warn("a file cannot be removed from the store: actions that need its blob fail until you remove it",
		zap.String("file", f.path(k)), zap.Error(err),
		zap.String("to_mend", "look at it with lsattr, and at its disk in /proc/mounts; chattr -i, or mount -o remount,rw; then remove the file"))
}

// replaced says that the file of k is no longer a stuck one. Readers of the stuck one find it among
// the damaged.
func (f *files) replaced(k digest.Digest) {
	if f.stuck.remove(k) {
		f.noteDamage([]digest.Digest{k})
	}
}

// unstick tries again to take a stuck file of k away.
func (f *files) unstick(k digest.Digest) {
	if wait, exists := f.admit(k); exists {
		f.unpin(k)
		return
	} else if wait != nil {
		return // another caller does it
	}
	if f.setAside(k, f.path(k), "") == nil {
		f.replaced(k)
		f.log.Info("a file that was stuck in the store is removed", zap.String("file", f.path(k)))
	}
	f.abort(k)
}
