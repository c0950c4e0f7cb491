package series

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// version is the first byte of the encoding. Increase it when the rest changes. A shape, the bins
// and a checksum follow.
const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged means that the encoding has no valid checksum or content.
var errDamaged = errors.New("damaged")

// MaxBytes returns the maximum size of the encoding of a Series of this shape.
func (s Shape) MaxBytes() int { return len(s.header()) + s.seriesBytes() + crc32.Size }

// LinesMaxBytes returns the maximum size of the encoding of Lines with that many series.
func (s Shape) LinesMaxBytes(most int) int {
	return len(s.header()) + 4 + most*(len(name{})+8+s.seriesBytes()) + crc32.Size
}

func (s Shape) seriesBytes() (n int) {
	for _, l := range s.Levels {
		n += 8 + l.Bins*(2+8*s.Figures)
	}
	return n
}

func (s Shape) header() []byte {
	b := []byte{version, byte(s.Figures), byte(len(s.Levels))}
	for _, l := range s.Levels {
		b = binary.LittleEndian.AppendUint32(b, uint32(l.Step/time.Second))
		b = binary.LittleEndian.AppendUint32(b, uint32(l.Bins))
	}
	return b
}

// Encode returns the encoding for Decode.
func (s *Series) Encode() []byte { return seal(s.append(s.shape.header())) }

// Decode decodes a Series. It returns an error if data is not the encoding of a Series of that
// shape.
func Decode(shape Shape, data []byte) (*Series, error) {
	rest, err := open(shape, data)
	if err != nil {
		return nil, err
	}
	s := New(shape)
	if rest, err = s.read(rest); err == nil && len(rest) > 0 {
		err = errDamaged
	}
	return s, err
}

// Encode returns the encoding for Lines.Decode.
func (l *Lines) Encode() []byte {
	b := binary.LittleEndian.AppendUint32(l.shape.header(), uint32(len(l.lines)))
	for n, line := range l.lines {
		b = append(b, n[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(line.seen))
		b = line.append(b)
	}
	return seal(b)
}

// Decode fills l, which must be empty. If data is not the encoding of Lines of that shape, it
// returns an error and l stays empty.
func (l *Lines) Decode(data []byte) error {
	rest, err := open(l.shape, data)
	if err != nil {
		return err
	}
	if len(rest) < 4 {
		return errDamaged
	}
	count := binary.LittleEndian.Uint32(rest)
	rest = rest[4:]
	if count > uint32(l.most) {
		return fmt.Errorf("%d lines, at most %d are kept", count, l.most)
	}
	lines := map[name]*line{}
	for range count {
		var n name
		if len(rest) < len(n)+8 {
			return errDamaged
		}
		rest = rest[copy(n[:], rest):]
		one := &line{New(l.shape), int64(binary.LittleEndian.Uint64(rest))}
		if rest, err = one.read(rest[8:]); err != nil {
			return err
		}
		lines[n] = one
	}
	if len(rest) > 0 {
		return errDamaged
	}
	l.lines = lines
	return nil
}

// append writes each level, the oldest bin first. An empty bin is only its count.
func (s *Series) append(b []byte) []byte {
	for i := range s.levels {
		r := &s.levels[i]
		b = binary.LittleEndian.AppendUint64(b, uint64(r.last))
		for j := r.last - int64(r.Bins) + 1; j <= r.last; j++ {
			at := r.slot(j)
			b = binary.LittleEndian.AppendUint16(b, r.counts[at])
			if r.counts[at] == 0 {
				continue
			}
			for f := at * s.shape.Figures; f < (at+1)*s.shape.Figures; f++ {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.sums[f]))
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(r.peaks[f]))
			}
		}
	}
	return b
}

// read fills s, which must be empty, and returns the rest of the data.
func (s *Series) read(b []byte) ([]byte, error) {
	for i := range s.levels {
		r := &s.levels[i]
		if len(b) < 8 {
			return nil, errDamaged
		}
		r.last = int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		for j := r.last - int64(r.Bins) + 1; j <= r.last; j++ {
			if len(b) < 2 {
				return nil, errDamaged
			}
			at := r.slot(j)
			r.counts[at] = binary.LittleEndian.Uint16(b)
			b = b[2:]
			if r.counts[at] == 0 {
				continue
			}
			if len(b) < 8*s.shape.Figures {
				return nil, errDamaged
			}
			for f := at * s.shape.Figures; f < (at+1)*s.shape.Figures; f++ {
				r.sums[f] = math.Float32frombits(binary.LittleEndian.Uint32(b))
				r.peaks[f] = math.Float32frombits(binary.LittleEndian.Uint32(b[4:]))
				b = b[8:]
			}
		}
	}
	return b, nil
}

func seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// open checks everything around the bins, and returns the bins.
func open(shape Shape, data []byte) ([]byte, error) {
	header := shape.header()
	if len(data) < len(header)+crc32.Size {
		return nil, errDamaged
	}
	end := len(data) - crc32.Size
	if crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
		return nil, errDamaged
	}
	if string(data[:len(header)]) != string(header) {
		return nil, errors.New("written by another version")
	}
	return data[len(header):end], nil
}
