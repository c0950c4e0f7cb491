package finished

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxNested limits a message within another: its length takes two bytes.
const maxNested = 1<<14 - 1

// maxHash limits a hash, which has 128 digits at most.
const maxHash = 128

// A wire is a message as protobuf encodes it, in memory that is reused. Records are written like
// this, because to fill in a message and to encode it costs three times as much. A field without a
// value is not written.
type wire struct {
	b []byte
	// isTooLarge: a nested message was larger than maxNested.
	isTooLarge bool
}

// reset begins another message, after free bytes.
func (w *wire) reset(free int) {
	w.b, w.isTooLarge = append(w.b[:0], make([]byte, free)...), false
}

// item returns the message with the free bytes; nil if it cannot be read.
func (w *wire) item() []byte {
	if w.isTooLarge {
		return nil
	}
	return w.b
}

// text writes a string, and returns what it wrote. What is not UTF-8 would make the message
// unreadable, and is replaced.
func (w *wire) text(field protowire.Number, s string) string {
	if s == "" {
		return ""
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	w.element(field, s)
	return s
}

// element writes a string even if it is empty.
func (w *wire) element(field protowire.Number, s string) {
	w.b = protowire.AppendString(protowire.AppendTag(w.b, field, protowire.BytesType), s)
}

func (w *wire) bytes(field protowire.Number, b []byte) {
	if len(b) > 0 {
		w.b = protowire.AppendBytes(protowire.AppendTag(w.b, field, protowire.BytesType), b)
	}
}

// number writes a number or an enum.
func (w *wire) number(field protowire.Number, v int64) {
	if v != 0 {
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, field, protowire.VarintType), uint64(v))
	}
}

// digest writes a digest as hash/size, unless no function has such a hash: it could be as long as a
// message, or no text.
func (w *wire) digest(field protowire.Number, d *repb.Digest) {
	if d == nil || len(d.GetHash()) > maxHash || !utf8.ValidString(d.GetHash()) {
		return
	}
	var memory [20]byte
	size := strconv.AppendInt(memory[:0], d.GetSizeBytes(), 10)
	w.b = protowire.AppendTag(w.b, field, protowire.BytesType)
	w.b = protowire.AppendVarint(w.b, uint64(len(d.GetHash())+1+len(size)))
	w.b = append(append(append(w.b, d.GetHash()...), '/'), size...)
}

// ownDigest writes a digest as hash/size, and returns the text, which is valid until the next write.
func (w *wire) ownDigest(field protowire.Number, d digest.Digest) []byte {
	at := w.open(field)
	w.b = d.AppendString(w.b)
	w.close(at)
	return w.b[at:]
}

// The fields of a Timestamp and of a Duration.
const (
	secondsField protowire.Number = 1
	nanosField   protowire.Number = 2
)

func (w *wire) time(field protowire.Number, t time.Time) {
	w.span(field, t.Unix(), int32(t.Nanosecond()))
}

func (w *wire) timestamp(field protowire.Number, t *timestamppb.Timestamp) {
	if t != nil {
		w.span(field, t.GetSeconds(), t.GetNanos())
	}
}

// span writes a Timestamp or a Duration.
func (w *wire) span(field protowire.Number, seconds int64, nanos int32) {
	w.b = protowire.AppendTag(w.b, field, protowire.BytesType)
	at := len(w.b)
	w.b = append(w.b, 0) // less than 128 bytes
	w.number(secondsField, seconds)
	w.number(nanosField, int64(nanos))
	w.b[at] = byte(len(w.b) - at - 1)
}

// open begins a nested message, for which close must be called with the result.
func (w *wire) open(field protowire.Number) (at int) {
	w.b = append(protowire.AppendTag(w.b, field, protowire.BytesType), 0, 0)
	return len(w.b)
}

// close ends the nested message that began at a place. Its length is a varint of two bytes even if
// one would do.
func (w *wire) close(at int) {
	n := len(w.b) - at
	if n > maxNested {
		w.isTooLarge = true
	}
	w.b[at-2], w.b[at-1] = byte(n)|0x80, byte(n>>7)&0x7f
}
