package vfs

import (
	"github.com/forerunner-build/forerunner/vfs/folder"
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
