package sandbox

import (
	"os"
	"time"
)

// What commands see, for the tests that look.
var (
	OwnFolders = ownFolders
	OwnEtc     = ownEtc
	ShownInEtc = shownInEtc
)

// Trusted reports whether a network in which nothing was left is another command's, so long after
// its first command began.
func Trusted(after time.Duration) (bool, error) {
	null, err := os.Open(os.DevNull) // a witness that never says anything
	if err != nil {
		return false, err
	}
	defer null.Close()
	n := &network{witnesses: []witness{{fd: int(null.Fd())}}}
	return !n.isOld(n.entered.Add(after)) && n.untouched(make([]byte, mostSaid)), nil
}

// MostNamespaces is how many of a kind a command may have.
const (
	MostNamespaces      = mostNamespaces
	MostMountNamespaces = mostMountNamespaces
)
