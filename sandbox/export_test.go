package sandbox

// What commands see, for the tests that look.
var (
	OwnFolders = ownFolders
	OwnEtc     = ownEtc
	ShownInEtc = shownInEtc
)

// MostNamespaces is how many of a kind a command may have.
const MostNamespaces = mostNamespaces
