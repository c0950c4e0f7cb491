package cas

// A Presence says where a blob was when somebody asked a store for it that fetches what it lacks.
type Presence uint8

// The places.
const (
	Local    Presence = iota // in the store
	OnItsWay                 // being fetched, whoever had asked for it
	Absent                   // neither
)
