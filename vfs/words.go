package vfs

import (
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// Owner is a user and a group.
type Owner = folder.Owner

// ErrDamaged is wrapped by the errors of Root.Vouch, and where a blob that is to be copied is
// not what its digest says.
var ErrDamaged = vouch.ErrDamaged

// ErrInputChanged is wrapped by the errors of Root.Intact.
var ErrInputChanged = link.ErrInputChanged

// A Loader is a Source that can fetch many blobs at once, which hard links need.
type Loader = link.Loader

// A Verifier is a Source that can look whether a local blob is what its digest says.
type Verifier = link.Verifier

// BlobFolder is where the blobs that are local lie as plain files, which are
// never changed and may go at any time. With it, what several roots have in
// common is shown without asking this process.
type BlobFolder = image.Blobs

// ArrivingSource is a Source that need not have all of a file before it is read.
type ArrivingSource = fuse.ArrivingSource

// Arrival is a blob on its way.
type Arrival = fuse.Arrival
