package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// packed returns text as a frame with a window.
func packed(t testing.TB, text []byte, window int, o ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, append(o, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(text, 10_000) {
		if _, err := z.Write(piece); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil { // a block of its own: the size is not known before
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// through decodes a stream through Frames, and returns what memory was asked for.
func through(stream []byte, size int, most int64) (text []byte, asked []int64, err error) {
	f := NewFrames(bytes.NewReader(stream), int64(size), func(bytes int64) error {
		if asked = append(asked, bytes); bytes > most {
			return status.Error(codes.ResourceExhausted, "no room")
		}
		return nil
	})
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(MaxZstdWindow))
	if err != nil {
		return nil, nil, err
	}
	defer z.Close()
	text, err = io.ReadAll(z)
	if f.Refused() != nil {
		err = f.Refused()
	}
	return text, asked, err
}

func letters(n int) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, n)
	for i := range text {
		text[i] = 'a' + byte(r.UintN(4))
	}
	return text
}

func TestFrames(t *testing.T) {
	text := letters(300_000)
	skipped := []byte("\x53\x2a\x4d\x18\x05\x00\x00\x00hello")
	whole := packed(t, text, 1<<20)
	parts := bytes.Join([][]byte{skipped, packed(t, text[:100_000], 1<<20), skipped, packed(t, text[100_000:], 1<<20), skipped}, nil)
	encoder := NewBatchEncoder()
	for name, c := range map[string]struct {
		stream []byte
		text   []byte
		window int64 // that is allocated
	}{
		"long window":   {packed(t, text, 128<<20), text, 320 << 10},
		"short window":  {packed(t, text, 64<<10), text, 64 << 10},
		"no checksum":   {packed(t, text, 1<<20, zstd.WithEncoderCRC(false)), text, 320 << 10},
		"same bytes":    {packed(t, make([]byte, 300_000), 8<<20), make([]byte, 300_000), 320 << 10},
		"random":        {packed(t, randomBytes(300_000), 8<<20), randomBytes(300_000), 320 << 10},
		"one segment":   {encoder.EncodeAll(text, nil), text, 300_000},
		"single bytes":  {encoder.EncodeAll([]byte("x"), nil), []byte("x"), 1 << 10},
		"nothing":       {packed(t, nil, 8<<20, zstd.WithZeroFrames(true)), []byte{}, 1 << 10},
		"several":       {parts, text, 320 << 10},
		"twice the one": {append(whole[:len(whole):len(whole)], packed(t, nil, 1<<20, zstd.WithZeroFrames(true))...), text, 320 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			got, asked, err := through(c.stream, len(c.text), 1<<40)
			if err != nil || !bytes.Equal(got, c.text) {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, len(c.text))
			}
			if len(asked) != 1 || asked[0] > decoderBytes(c.window) {
				t.Errorf("asked for %d, want at most %d", asked, decoderBytes(c.window))
			}
		})
	}
}

func randomBytes(n int) []byte {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(text)
	return text
}

func TestFramesRefused(t *testing.T) {
	text := letters(1000)
	frame := func(descriptor byte) []byte { return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, descriptor, 3, 0, 0, 'x'} }
	const large = 1 << 40
	for name, c := range map[string]struct {
		stream []byte
		size   int
		most   int64
		want   codes.Code
	}{
		"more than there is room": {frame(13 << 3), large, 1 << 20, codes.ResourceExhausted},
		"gigabytes":               {frame(31<<3 | 7), large, large, codes.InvalidArgument},
		"longer than the blob":    {NewBatchEncoder().EncodeAll(text, nil), 999, large, codes.InvalidArgument},
		"a longer one later":      {append(packed(t, text, 64<<10), frame(13<<3)...), large, large, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := through(c.stream, c.size, c.most); status.Code(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// FuzzFrames compares what is decoded with and without Frames.
func FuzzFrames(f *testing.F) {
	text := letters(50_000)
	f.Add(packed(f, text, 1<<20), uint32(len(text)))
	f.Add(packed(f, text, 32<<10), uint32(len(text)-1))
	f.Add(append(NewBatchEncoder().EncodeAll(text, nil), packed(f, nil, 1<<20)...), uint32(len(text)))
	f.Fuzz(func(t *testing.T, stream []byte, size uint32) {
		size %= 1 << 20
		got, _, err := through(stream, int(size), decoderBytes(1<<20))
		if s, ok := status.FromError(err); err != nil && ok && s.Code() != codes.Unknown {
			return
		}
		z, _ := zstd.NewReader(bytes.NewReader(stream), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxZstdWindow))
		defer z.Close()
		want, failed := io.ReadAll(io.LimitReader(z, int64(size)+1))
		if failed == nil && len(want) <= int(size) && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
		if err == nil && failed != nil && !errors.Is(failed, io.ErrUnexpectedEOF) && len(got) <= int(size) {
			t.Fatalf("%v was not seen", failed)
		}
	})
}
