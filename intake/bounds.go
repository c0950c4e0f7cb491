package intake

import "time"

const (
	// callBytes is what a call in flight costs: its goroutine, its stream and a small request.
	callBytes = 16 << 10
	// smallMessage is the size up to which a message is part of that.
	smallMessage = 16 << 10
	// uploadBytes is what a stream of requests costs beside its window: what its handler collects, and
	// the bytes of one frame that wait on each side.
	uploadBytes = 128 << 10
	// connectionBytes is what a connection costs: buffers, goroutines and the state of TLS.
	connectionBytes = 64 << 10
	// slowest is the rate in bytes per second that a sender has to keep up.
	slowest = 16 << 10
	// customary is the size of messages that gRPC takes unless it is told otherwise.
	customary = 4 << 20
)

// Bounds are how much a server takes in. Where there are two, the first is for all callers, the second
// for one.
type Bounds struct {
	// Connections of all addresses, and of one.
	Connections, ConnectionsOfOne int
	// Guests are connections that have shown no identity, where one is asked for.
	Guests, GuestsOfOne int
	// Streams are the calls at a time on one connection; the client waits with more.
	Streams uint32
	// Calls in flight.
	Calls, CallsOfOne int
	// Uploads are bytes that streams of requests may cost, their windows included.
	Uploads, UploadsOfOne int64
	// Messages are bytes of requests beyond small ones, from when they are announced until they are dealt with.
	Messages, MessagesOfOne int64
	// Waiting calls have no room yet; further ones are refused.
	Waiting, WaitingOfOne int
	// Window is what a client sends of a call before it is read.
	Window int32
	// Wait is how long a request may take to begin to arrive, and a call to find room.
	Wait time.Duration
	// Stall is how long a stream of requests may bring nothing.
	Stall time.Duration
	// Guest is how long a connection may show no identity.
	Guest time.Duration
}

// BoundsFor returns what a process that may use so many bytes of memory can take in: connections, calls,
// uploads and messages may come to an eighth each.
func BoundsFor(memory int64) Bounds {
	part := memory / 8
	b := Bounds{
		Connections: clamp(part/connectionBytes, 64, 50_000),
		Streams:     1000,
		Calls:       clamp(part/callBytes, 512, 1<<20),
		Window:      int32(clamp(memory>>12, 64<<10, 4<<20)),
		Uploads:     max(part, 4<<20),
		Messages:    max(min(part, 1<<30), 8<<20),
		Wait:        20 * time.Second, Stall: time.Minute, Guest: time.Minute,
	}
	b.ConnectionsOfOne = b.Connections / 2
	b.Guests, b.GuestsOfOne = b.Connections/4, b.Connections/8
	b.CallsOfOne, b.UploadsOfOne, b.MessagesOfOne = b.Calls/2, b.Uploads/2, b.Messages/2
	b.Waiting, b.WaitingOfOne = b.Calls/8, b.Calls/16
	return b
}

// MaxMessage returns the largest message that there can be room for, most at best.
func (b Bounds) MaxMessage(most int) int { return int(min(int64(most), b.MessagesOfOne)) }

// upload is what one stream of requests costs.
func (b Bounds) upload() int64 { return int64(b.Window) + uploadBytes }

func clamp(n, least, most int64) int { return int(min(max(n, least), most)) }
