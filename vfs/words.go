package vfs

import (
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// Owner is a user and a group.
type Owner = folder.Owner

// ErrDamaged is wrapped by the errors of Root.Vouch, and returned if a blob to be copied does not
// match its digest.
var ErrDamaged = vouch.ErrDamaged

// ErrInputChanged is wrapped by the errors of Root.Intact.
var ErrInputChanged = link.ErrInputChanged

// A CopySource is a Source whose small input roots can be copied.
type CopySource = copied.Source

// A Loader is a Source that can fetch many blobs at once, which hard links need.
type Loader = link.Loader

// A Verifier is a Source that can check whether a local blob matches its digest.
type Verifier = link.Verifier

// BlobFolder is the folder of the local blobs, plain files that never change and may be removed at
// any time. With it, subtrees that several roots have in common are shown without this process.
type BlobFolder = image.Blobs

// LocalSource is a Source that tells at once whether it has a blob: opens of local files then start
// no goroutine, and do not count as waiting.
type LocalSource = fuse.LocalSource

// ArrivingSource is a Source that can return a file before all of it has arrived.
type ArrivingSource = fuse.ArrivingSource

// Arrival is a blob on its way.
type Arrival = fuse.Arrival
