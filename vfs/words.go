package vfs

import (
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// Owner is a user and a group.
type Owner = folder.Owner

// ErrDamaged is wrapped by the errors of Root.Vouch, and where a blob that is to be copied is
// not what its digest says.
var ErrDamaged = vouch.ErrDamaged
