package folder

import "os"

// Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// ProcessOwner returns the user and group of this process.
func ProcessOwner() Owner { return Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())} }

// Give changes the owner of a folder to o. This process must have made the folder.
func (o Owner) Give(dir string) error {
	if o == ProcessOwner() {
		return nil
	}
	return os.Chown(dir, int(o.UID), int(o.GID))
}
