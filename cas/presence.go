package cas

// A Presence is where a blob was when a caller requested it from a store that fetches missing
// blobs.
type Presence uint8

// The places.
const (
	Local    Presence = iota // in the store
	OnItsWay                 // being fetched, for any caller
	Absent                   // neither
)
