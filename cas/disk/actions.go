package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// ActionsOptions are the options of Actions. The zero value works.
type ActionsOptions struct {
	// MaxEntries bounds the number of results; 0 is 500,000. A result takes one
	// file, most often of one block.
	MaxEntries int64
	// Spread is the same as in the Options of a Store.
	Spread bool
	// MakeFolders makes the folders of results at once. Otherwise each is made with its first
	// result, while a client waits.
	MakeFolders bool
	// Logger may be nil.
	Logger *zap.Logger
}

func (o *ActionsOptions) validate() error {
	if o.MaxEntries < 0 {
		return fmt.Errorf("an action cache cannot have %d entries", o.MaxEntries)
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = 500_000
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

// Actions keeps the results of actions as files of one folder, with a maximum number; the least
// recently used ones are evicted first. It does not check that the blobs in a result exist. Its
// methods may be called concurrently.
//
// A file holds a mark, a SHA-256 of the rest together with the key, and the message. Nothing is
// synced to disk: a read detects damage from a power failure by the checksum, and treats the result
// as missing.
type Actions struct{ files *files }

// An actionKey is the key of an action's result: the SHA-256 of the instance name and the action's
// digest, as a Digest of no bytes.
type actionKey struct{ digest.Digest }

// actionMark begins each file; it changes with the format.
const actionMark = "FwAR1\n"

const actionHeaderBytes = len(actionMark) + sha256.Size

// OpenActions opens the action cache in dir, which it creates if needed and keeps
// locked until Close. It must not be the folder of a Store itself.
func OpenActions(dir string, o ActionsOptions) (*Actions, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open action cache %s: %w", dir, err)
	}
	f, err := openFiles(dir, actionLayout(), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open action cache %s: %w", dir, err)
	}
	f.spread(o.Spread)
	if o.MakeFolders {
		f.makeShards(resultsName)
	}
	f.limit(o.MaxEntries)
	return &Actions{files: f}, nil
}

// Close lets another process open the action cache. Afterwards Get finds nothing and Put fails.
func (a *Actions) Close() error { return a.files.close() }

// Get returns the result of action d in an instance, which counts as a use. The caller may change
// it. The error for a missing one is ErrNotFound.
func (a *Actions) Get(ctx context.Context, instance string, d digest.Digest) (*repb.ActionResult, error) {
	r, err := a.get(ctx, keyOfAction(instance, d))
	if err != nil {
		return nil, fmt.Errorf("get action result %s: %w", d, err)
	}
	return r, nil
}

func (a *Actions) get(ctx context.Context, k actionKey) (*repb.ActionResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, generation, err := a.files.open(k.Digest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	r, wrong := k.examine(b, err)
	if wrong != "" {
		a.files.drop(k.Digest, generation, wrong)
		return nil, cas.ErrNotFound
	}
	return r, nil
}

// examine returns the result in a file's bytes, or the damage of the file, which may not have been
// read completely.
func (k actionKey) examine(b []byte, reading error) (_ *repb.ActionResult, wrong string) {
	if reading != nil {
		return nil, fmt.Sprintf("cannot be read: %v", reading)
	}
	if r := k.decode(b); r != nil {
		return r, ""
	}
	return nil, "is damaged"
}

// decode returns the result in a file's bytes; nil if they are damaged.
func (k actionKey) decode(b []byte) *repb.ActionResult {
	r := new(repb.ActionResult)
	if encoded, ok := k.unseal(b); ok && proto.Unmarshal(encoded, r) == nil {
		return r
	}
	return nil
}

// Put stores r as the result of action d in an instance, and replaces an existing one.
func (a *Actions) Put(ctx context.Context, instance string, d digest.Digest, r *repb.ActionResult) error {
	if d.IsZero() {
		return fmt.Errorf("put action result: %w: it is not set", digest.ErrInvalid)
	}
	encoded, err := proto.Marshal(r)
	if err == nil {
		k := keyOfAction(instance, d)
		err = a.put(ctx, k, k.seal(encoded))
	}
	if err != nil {
		return fmt.Errorf("put action result %s: %w", d, err)
	}
	return nil
}

func (a *Actions) put(ctx context.Context, k actionKey, b []byte) error {
	if err := a.files.reserve(1); err != nil {
		return err
	}
	err := a.writeReserved(ctx, k, b)
	if err != nil {
		a.files.release(1)
		return err
	}
	a.files.unpin(k.Digest)
	return nil
}

func (a *Actions) writeReserved(ctx context.Context, k actionKey, b []byte) error {
	temp, err := a.files.createTemp()
	if err != nil {
		return err
	}
	err = a.files.withSpace(1, func() error {
		_, err := temp.WriteAt(b, 0)
		return err
	})
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = a.files.settle(ctx, k.Digest, arrival{from: temp.Name(), replace: true})
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

func keyOfAction(instance string, d digest.Digest) actionKey {
	// The digest comes first and has no line break, so no two keys share a text.
	hash := sha256.Sum256([]byte(d.Function().String() + "/" + d.String() + "\n" + instance))
	k, err := digest.FromHash(digest.SHA256, hash, 0)
	if err != nil {
		panic(err) // the function and the size are valid
	}
	return actionKey{k}
}

func (k actionKey) sum(encoded []byte) [sha256.Size]byte {
	return sha256.Sum256(append(k.AppendHash(nil), encoded...))
}

func (k actionKey) seal(encoded []byte) []byte {
	sum := k.sum(encoded)
	return append(append([]byte(actionMark), sum[:]...), encoded...)
}

// unseal returns the message in a file's bytes; ok is false if they are damaged.
func (k actionKey) unseal(b []byte) (encoded []byte, ok bool) {
	if len(b) < actionHeaderBytes || !strings.HasPrefix(string(b[:actionHeaderBytes]), actionMark) {
		return nil, false
	}
	sum := k.sum(b[actionHeaderBytes:])
	return b[actionHeaderBytes:], bytes.Equal(sum[:], b[len(actionMark):actionHeaderBytes])
}

// resultsName is the folder of all results.
const resultsName = "results"

func actionLayout() layout {
	return layout{
		groups: []string{resultsName},
		path:   actionPath,
		parse: func(path string) (k digest.Digest, ok bool) {
			k, err := digest.Parse(digest.SHA256, path[strings.LastIndexByte(path, '/')+1:], 0)
			return k, err == nil && actionPath(k) == path
		},
		whole: func(_ digest.Digest, bytes int64) bool { return bytes >= int64(actionHeaderBytes) },
		cost:  func(digest.Digest) int64 { return 1 },
	}
}

func actionPath(k digest.Digest) string {
	h := k.Hash()
	return resultsName + "/" + h[:2] + "/" + h
}
