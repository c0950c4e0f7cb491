package folder

import "os"

// Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// ProcessOwner is the user and group of this process.
func ProcessOwner() Owner { return Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())} }

// Give gives a folder to o, if it is not his. It must be one that this process has made.
func (o Owner) Give(dir string) error {
	if o == ProcessOwner() {
		return nil
	}
	return os.Chown(dir, int(o.UID), int(o.GID))
}
