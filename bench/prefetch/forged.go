package prefetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
)

// recordsFile is the name of the file with a worker's profiles, in its data folder.
const recordsFile = "records.db"

// forge makes a memory with wrong profiles from the memory with exact ones.
func (b *prefetchBench) forge(ctx context.Context, key memoryKey) (err error) {
	w, right := b.works[key.work], b.memories[memoryKey{key.work, exact}]
	report.Progress("%s, a profile that is %s", w.name, key.column)
	m := memory{folder: b.memoryFolder(key), actions: right.actions}
	if err := os.Mkdir(m.folder, 0o755); err != nil {
		return err
	}
	from, err := records.OpenBolt(filepath.Join(right.folder, recordsFile), records.BoltOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := records.OpenBolt(filepath.Join(m.folder, recordsFile), records.BoltOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	profiles := prefetch.NewProfiles(to, prefetch.ProfilesOptions{})
	inputs := &inputTree{storage: b.farm.Storage, directories: map[digest.Digest]*tree.Directory{}}
	for _, action := range m.actions {
		if err := inputs.forge(ctx, key.column, action, from, profiles); err != nil {
			return fmt.Errorf("forge a profile of %s: %w", action, err)
		}
	}
	b.memories[key] = m
	return to.Flush(ctx)
}

// An inputTree reads the directories of input roots.
type inputTree struct {
	storage     *casclient.Client
	directories map[digest.Digest]*tree.Directory
}

// forge puts wrong profiles of an action into profiles. from has the exact ones.
func (t *inputTree) forge(
	ctx context.Context, how column, action digest.Digest, from records.Hints, profiles *prefetch.Profiles,
) error {
	var a repb.Action
	raw, err := t.storage.Read(ctx, action)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("decode action: %w", err)
	}
	same := prefetch.Action{Digest: digest.OfReduced(testbed.Function, &a)}
	value, err := from.Get(ctx, records.Key{Bucket: names.ProfileBucket, Digest: same.Digest})
	if err != nil {
		return err
	}
	record, ok := prefetch.ParseRecord(value)
	if !ok || !record.KnowsLast() {
		return errors.New("the exact profile has no history")
	}
	root, err := digest.FromProto(testbed.Function, a.GetInputRootDigest())
	if err != nil {
		return fmt.Errorf("input root: %w", err)
	}
	read, unread, err := t.files(ctx, root, record)
	if err != nil {
		return err
	}
	wrong := wrongPaths(how, read, unread)
	if len(wrong) == 0 {
		return errors.New("the profile cannot be wrong: the tree has no other files")
	}
	var recorder prefetch.Recorder
	for _, path := range wrong {
		recorder.Read(path, tree.File)
	}
	var in prefetch.Inputs
	if how != renamed { // in a renamed tree the directories differ
		in.Directories = prefetch.Directories(t.known, root, recorder.Has)
		in.First = recorder.FirstFiles(t.known, root)
	}
	profiles.Learn(ctx, same, recorder.Hashes(), in)
	return nil
}

// wrongPaths returns the files of a wrong profile for a tree with some read and some unread files.
func wrongPaths(how column, read, unread []string) (paths []string) {
	switch how {
	case renamed:
		for _, path := range read {
			paths = append(paths, path+".old")
		}
	case poisoned:
		paths = append(append(paths, read...), unread...)
	case stale:
		step := max(len(unread)/max(len(read), 1), 1)
		for i := 0; i < len(unread) && len(paths) < len(read); i += step {
			paths = append(paths, unread[i])
		}
	}
	return paths
}

// files returns the paths of all files below root: those that the last run read, and the others.
func (t *inputTree) files(ctx context.Context, root digest.Digest, last prefetch.Record) (read, unread []string, err error) {
	type directoryAt struct {
		path   string
		digest digest.Digest
	}
	for todo := []directoryAt{{"", root}}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		d, err := t.directory(ctx, at.digest)
		if err != nil {
			return nil, nil, err
		}
		for i := range d.Len() {
			e := d.At(i)
			path := filepath.Join(at.path, e.Name)
			switch {
			case e.Kind == tree.Dir:
				todo = append(todo, directoryAt{path, e.Digest})
			case e.Kind == tree.File && last.ReadLast(prefetch.HashPath(path)):
				read = append(read, path)
			case e.Kind == tree.File:
				unread = append(unread, path)
			}
		}
	}
	return read, unread, nil
}

func (t *inputTree) known(d digest.Digest) (*tree.Directory, bool) {
	found, ok := t.directories[d]
	return found, ok
}

func (t *inputTree) directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if found, ok := t.known(d); ok {
		return found, nil
	}
	raw, err := t.storage.Read(ctx, d)
	if err != nil {
		return nil, err
	}
	found, err := tree.Parse(testbed.Function, raw)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", d, err)
	}
	t.directories[d] = found
	return found, nil
}
