package sandbox

// What commands see, for the tests that look.
var (
	OwnFolders = ownFolders
	OwnEtc     = ownEtc
	ShownInEtc = shownInEtc
)
