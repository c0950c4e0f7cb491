package intake

import "time"

const (
	// callBytes is the cost of a call in flight: its goroutine, its stream and a small request.
	callBytes = 16 << 10
	// maxStreams are more than the positions of the largest worker, each of which holds a call.
	maxStreams = 4096
	// smallMessage is the size up to which a message is part of that.
	smallMessage = 16 << 10
	// smallAnswer is the size up to which an answer that waits for its client does not keep its
	// call charged: so many of these as a client can ask for without reading have less than one
	// write.
	smallAnswer = 1 << 10
	// uploadBytes is the cost of a stream of requests beside its data: its handler's open file, and
	// a small message that has arrived in part.
	uploadBytes = 32 << 10
	// headerBytes leave room for a RequestMetadata of 64 KiB, which travels as base64, and for a
	// token.
	headerBytes = 128 << 10
	// connectionBytes is the cost of a connection: buffers, goroutines and the state of TLS.
	connectionBytes = 64 << 10
	// smallFrameBytes is the overhead of frames of one byte: gRPC joins them when there are a
	// thousand.
	smallFrameBytes = 64 << 10
	// slowest is the lowest allowed rate of a sender in bytes per second.
	slowest = 16 << 10
	// leastBuffers let one caller have a zstd stream with the window of 8 MiB that the strongest
	// usual level has.
	leastBuffers = 20 << 20
	// largestPooled is the size of the largest buffers that are used again.
	largestPooled = 16 << 20
	// customary is gRPC's default limit of a message.
	customary = 4 << 20
)

// Bounds are the limits of a server. If there are two, the first is for all callers, the second for
// one.
type Bounds struct {
	// Connections of all addresses, and of one.
	Connections, ConnectionsOfOne int
	// Pages are the connections of a server of pages, apart from those. One address may have half of
	// them.
	Pages int
	// Guests are connections that have not authenticated, if authentication is on.
	Guests, GuestsOfOne int
	// Streams are the concurrent calls on one connection; further ones wait in the client.
	Streams uint32
	// Beginnings are bytes of calls that are not charged to a caller yet. Further calls are not
	// read.
	Beginnings int64
	// Calls in flight.
	Calls, CallsOfOne int
	// GuestCalls are calls of unauthenticated callers, if authentication is on: they are for health
	// checks.
	GuestCalls, GuestCallsOfOne int
	// Uploads are bytes that streams of requests may take while they wait for their clients.
	Uploads, UploadsOfOne int64
	// Windows are bytes that clients may send on such streams while earlier ones are handled.
	Windows, WindowsOfOne int64
	// Messages are bytes of requests beyond small ones, from their announcement until they are
	// handled.
	Messages, MessagesOfOne int64
	// Buffers are bytes that handlers take with Reserve, because callers choose their size.
	Buffers, BuffersOfOne int64
	// Waiting calls wait for memory; further ones are refused. Each may have sent a window.
	Waiting, WaitingOfOne int
	// Window is how much of a call a client sends before the server reads it. gRPC has one for all
	// calls, and lets it grow only for a longer message.
	Window int32
	// Headers are the bytes of one call's headers, which arrive before the caller is known.
	Headers uint32
	// Wait is how long a request may take to begin to arrive, and how long a call waits for memory.
	Wait time.Duration
	// Stall is how long a stream of requests may be silent.
	Stall time.Duration
	// Guest is how long a connection may stay unauthenticated.
	Guest time.Duration
}

// BoundsFor returns the limits of a process that may use so many bytes of memory: connections,
// calls, messages, buffers and waiting calls may take an eighth each; uploads, their windows and
// new calls a sixteenth.
func BoundsFor(memory int64) Bounds {
	part := memory / 8
	b := Bounds{
		Connections: clamp(part/connectionBytes, 64, 50_000),
		Calls:       clamp(part/callBytes, 512, 1<<20),
		Beginnings:  max(part/2, 4<<20),
		Window:      int32(clamp(memory>>14, 64<<10, 1<<20)),
		Headers:     headerBytes,
		Uploads:     max(part/2, 4<<20),
		Windows:     max(part/2, 4<<20),
		Messages:    max(min(part, 1<<30), 8<<20),
		Buffers:     max(min(part, 1<<30), leastBuffers),
		Wait:        20 * time.Second, Stall: time.Minute, Guest: time.Minute,
	}
	b = b.WithConnections(b.Connections)
	b.Pages = clamp(b.Messages/4/pageBytes, 64, 1000)
	b.CallsOfOne, b.MessagesOfOne = b.Calls/2, b.Messages/2
	b.GuestCalls, b.GuestCallsOfOne = b.Calls/16, b.Calls/32
	b.Streams = uint32(min(b.CallsOfOne*3/4, maxStreams)) // a client waits with more, and is not refused
	b.UploadsOfOne, b.WindowsOfOne, b.BuffersOfOne = b.Uploads/2, b.Windows/2, b.Buffers/2
	b.Waiting = clamp(part/int64(b.Window), 64, int64(b.Calls/2))
	b.WaitingOfOne = b.Waiting / 2
	return b
}

// WithConnections returns b for another number of connections.
func (b Bounds) WithConnections(n int) Bounds {
	b.Connections, b.ConnectionsOfOne = n, max(1, n/2)
	b.Guests, b.GuestsOfOne = max(1, n/4), max(1, n/8)
	return b
}

// WithWindow returns b for another window: a larger one for fewer calls.
func (b Bounds) WithWindow(bytes int32) Bounds {
	b.Waiting = int(max(int64(b.Waiting)*int64(b.Window)/int64(bytes), 16))
	b.WaitingOfOne = b.Waiting / 2
	b.Window = bytes
	return b
}

// yieldsAfter is how long a call must have waited for a message of its client before it yields to
// one of a connection that has less.
func (b Bounds) yieldsAfter() time.Duration { return b.Wait / 4 }

// MaxMessage returns the largest message for which there can be memory, at most most.
func (b Bounds) MaxMessage(most int) int { return int(min(int64(most), b.MessagesOfOne)) }

func clamp(n, least, most int64) int { return int(min(max(n, least), most)) }
