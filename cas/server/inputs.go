package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxOwnTrees bounds the directories that a Server knows to be an instance name's: some 12 MB.
const maxOwnTrees = 1 << 17

// ownTrees are the directories whose complete content, with everything below, an instance name had
// at some time. It does not matter that parts may be evicted since: a caller that has had all bytes
// may see them. It is a hint, and forgets directories that were not used recently. The zero value
// is ready for use.
type ownTrees struct {
	mu sync.Mutex
	// latest are searched before former, which is the previous latest after that was full.
	latest, former map[treeKey]struct{} // guarded by mu
}

// A treeKey is the SHA-256 of an instance name and the digest of a directory.
type treeKey [sha256.Size]byte

func keyOfDirectory(instance string, d digest.Digest) treeKey {
	// The digest comes first and has no line break, so no two keys share a text.
	return sha256.Sum256([]byte(d.Function().String() + "/" + d.String() + "\n" + instance))
}

func (p *ownTrees) has(k treeKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.latest[k]; ok {
		return true
	}
	_, ok := p.former[k]
	if ok {
		p.addLocked(k)
	}
	return ok
}

func (p *ownTrees) add(ks []treeKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range ks {
		p.addLocked(k)
	}
}

func (p *ownTrees) addLocked(k treeKey) {
	if p.latest == nil || len(p.latest) >= maxOwnTrees/2 {
		p.former, p.latest = p.latest, map[treeKey]struct{}{}
	}
	p.latest[k] = struct{}{}
}

// Isolated reports whether each instance name sees only blobs that it has uploaded.
func (s *Server) Isolated() bool { return s.store.Isolated() }

// ReadBlob returns the bytes of d, which the caller must not change, if the instance name has it, or
// had it a moment ago. The errors are the same as those of Store.ReadBlob.
func (s *Server) ReadBlob(ctx context.Context, instance string, d digest.Digest) ([]byte, error) {
	if b, ok := s.recent.get(instance, d); ok {
		return b, nil
	}
	return s.content(instance).ReadBlob(ctx, d)
}

// MissingInputs returns the blobs of an action's command and input root that an instance name
// lacks. Workers fetch inputs for many instance names and keep them. Without this check an action
// could read a blob by its digest although its instance name has never had it. If all instance
// names share blobs, it returns nothing, and workers find missing ones. Its errors are gRPC
// statuses.
func (s *Server) MissingInputs(
	ctx context.Context, instance string, fn digest.Function, action *repb.Action,
) (missing []digest.Digest, err error) {
	if !s.Isolated() {
		return nil, nil
	}
	command, err := digest.FromProto(fn, action.GetCommandDigest())
	if err != nil {
		return nil, s.readStatus(fmt.Errorf("command_digest: %w", err))
	}
	root, err := digest.FromProto(fn, action.GetInputRootDigest())
	if err != nil {
		return nil, s.readStatus(fmt.Errorf("input_root_digest: %w", err))
	}
	own := s.catalog(instance)
	missing, err = own.FindMissing(ctx, []digest.Digest{command})
	if err != nil {
		return nil, s.readStatus(err)
	}
	below, err := s.missingBelow(ctx, instance, own, root)
	err = errors.Join(err, s.options.WaitForMemory(ctx, 0)) // the action continues
	if err != nil {
		return nil, s.readStatus(fmt.Errorf("input root %s: %w", root, err))
	}
	return append(missing, below...), nil
}

// missingBelow returns the blobs of a directory that an instance name lacks. It reads unproven
// directories, and proves them.
func (s *Server) missingBelow(
	ctx context.Context, instance string, own catalog, root digest.Digest,
) (missing []digest.Digest, err error) {
	if s.trees.has(keyOfDirectory(instance, root)) {
		return nil, nil
	}
	var looked []treeKey
	files := references{fn: root.Function(), seen: map[digest.Digest]struct{}{}}
	err = own.walkTree(ctx, root, listed, func(n *treeNode) error {
		if n.missing {
			missing = append(missing, n.digest)
			return nil
		}
		looked = append(looked, keyOfDirectory(instance, n.digest))
		files.addAll(n.refs.Files)
		n.refs.Directories = s.unproven(instance, n.refs)
		return nil
	})
	if err != nil {
		return nil, err
	}
	gone, err := own.FindMissing(ctx, files.ds)
	if err != nil {
		return nil, err
	}
	if missing = append(missing, gone...); len(missing) == 0 {
		s.trees.add(looked)
	}
	return missing, nil
}

// unproven returns the directories of r that are not proven.
func (s *Server) unproven(instance string, r tree.References) (ds []digest.Digest) {
	for _, d := range r.Directories {
		if !s.trees.has(keyOfDirectory(instance, d)) {
			ds = append(ds, d)
		}
	}
	return ds
}
