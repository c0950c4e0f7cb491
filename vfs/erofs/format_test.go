package erofs

import (
	"math/bits"
	"testing"
)

// xxh32 is XXH32 by its specification.
func xxh32(b []byte, seed uint32) uint32 {
	const p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
	n := uint32(len(b))
	h := seed + p5
	if len(b) >= 16 {
		p1v := uint32(p1)
		lanes := [4]uint32{seed + p1v + p2, seed + p2, seed, seed - p1v}
		for ; len(b) >= 16; b = b[16:] {
			for i := range lanes {
				lanes[i] = bits.RotateLeft32(lanes[i]+le.Uint32(b[4*i:])*p2, 13) * p1
			}
		}
		h = 0
		for i, rotate := range []int{1, 7, 12, 18} {
			h += bits.RotateLeft32(lanes[i], rotate)
		}
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+le.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}

func TestXattrFilter(t *testing.T) {
	for text, want := range map[string]uint32{"": 0x02CC5D05, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F} {
		if got := xxh32([]byte(text), 0); got != want {
			t.Fatalf("xxh32(%q) = %#x, want %#x: the test is wrong", text, got, want)
		}
	}
	for name, bit := range map[string]uint32{metacopyName: metacopyBit, redirectName: redirectBit, opaqueName: opaqueBit} {
		if want := xxh32([]byte(name), xattrFilterSeed+xattrTrusted) % 32; bit != want {
			t.Errorf("bit of %s is %d, want %d", name, bit, want)
		}
	}
}
