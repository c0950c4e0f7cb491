package digest

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

const (
	sha256OfABC  = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	blake3OfABC  = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
	sha256OfNone = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	blake3OfNone = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
)

func TestOfMatchesPublishedVectors(t *testing.T) {
	for _, c := range []struct {
		fn   Function
		in   string
		hash string
	}{
		{SHA256, "abc", sha256OfABC},
		{BLAKE3, "abc", blake3OfABC},
		{SHA256, "", sha256OfNone},
		{BLAKE3, "", blake3OfNone},
	} {
		d := Of(c.fn, []byte(c.in))
		if d.Hash() != c.hash || d.SizeBytes() != int64(len(c.in)) || d.Function() != c.fn {
			t.Errorf("Of(%s, %q) = %s", c.fn, c.in, d)
		}
		if d.IsEmptyBlob() != (c.in == "") {
			t.Errorf("%s: IsEmptyBlob = %t", d, d.IsEmptyBlob())
		}
		back, err := FromProto(c.fn, d.Proto())
		if err != nil || back != d {
			t.Errorf("FromProto(Proto(%s)) = %s, %v", d, back, err)
		}
		if appended := string(d.AppendHash([]byte("+"))); hex.EncodeToString([]byte(appended[1:])) != c.hash || appended[0] != '+' {
			t.Errorf("AppendHash of %s = %x", d, appended)
		}
		streamed, err := OfReader(c.fn, strings.NewReader(c.in))
		if err != nil || streamed != d {
			t.Errorf("OfReader = %s, %v", streamed, err)
		}
	}
}

func TestSameBytesUnderTwoFunctionsDiffer(t *testing.T) {
	if Of(SHA256, nil) == Of(BLAKE3, nil) || (Digest{}).IsEmptyBlob() || !(Digest{}).IsZero() {
		t.Error("digests of different functions, or the zero Digest, are mixed up")
	}
}

func TestParseRejects(t *testing.T) {
	for name, c := range map[string]struct {
		fn   Function
		hash string
		size int64
	}{
		"short":         {SHA256, sha256OfABC[1:], 3},
		"long":          {SHA256, sha256OfABC + "0", 3},
		"upper case":    {SHA256, strings.ToUpper(sha256OfABC), 3},
		"not hex":       {SHA256, "g" + sha256OfABC[1:], 3},
		"path":          {SHA256, "../" + sha256OfABC[3:], 3},
		"empty":         {BLAKE3, "", 0},
		"negative size": {BLAKE3, blake3OfABC, -1},
		"large size":    {SHA256, sha256OfABC, MaxSizeBytes + 1},
		"largest size":  {SHA256, sha256OfABC, math.MaxInt64},
		"least size":    {BLAKE3, blake3OfABC, math.MinInt64},
		"no function":   {0, sha256OfABC, 3},
	} {
		if d, err := Parse(c.fn, c.hash, c.size); !errors.Is(err, ErrInvalid) || !d.IsZero() {
			t.Errorf("%s: Parse = %s, %v", name, d, err)
		}
	}
	if _, err := FromProto(SHA256, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("FromProto(nil) = %v", err)
	}
}

func TestFunctionFromProto(t *testing.T) {
	for _, f := range Functions() {
		if got, err := FunctionFromProto(f.Proto()); got != f || err != nil {
			t.Errorf("FunctionFromProto(%s) = %s, %v", f.Proto(), got, err)
		}
	}
	if got, err := FunctionFromProto(repb.DigestFunction_UNKNOWN); got != SHA256 || err != nil {
		t.Errorf("unknown function: %s, %v", got, err)
	}
	if _, err := FunctionFromProto(repb.DigestFunction_MD5); !errors.Is(err, ErrInvalid) {
		t.Errorf("MD5: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sha256OfABC, int64(3))
	f.Fuzz(func(t *testing.T, hash string, size int64) {
		d, err := Parse(SHA256, hash, size)
		if err == nil && (d.Hash() != hash || d.SizeBytes() != size) {
			t.Errorf("Parse(%q, %d) = %s", hash, size, d)
		}
	})
}

func TestParseTakesLowerCaseHexadecimalAlone(t *testing.T) {
	for c := range 256 {
		for at := range 2 * HashSize {
			hash := []byte(strings.Repeat("0", 2*HashSize))
			hash[at] = byte(c)
			d, err := Parse(SHA256, string(hash), 0)
			if valid := strings.IndexByte("0123456789abcdef", byte(c)) >= 0; valid != (err == nil) {
				t.Errorf("%q: %v", hash, err)
			} else if valid && d.Hash() != string(hash) {
				t.Errorf("%q became %s", hash, d.Hash())
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	var hashes []string // one alone would teach the branch predictor
	for i := range 1 << 12 {
		hashes = append(hashes, Of(SHA256, []byte{byte(i), byte(i >> 8)}).Hash())
	}
	for i := 0; b.Loop(); i++ {
		if _, err := Parse(SHA256, hashes[i%len(hashes)], 2); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBlobName(t *testing.T) {
	for fn, want := range map[Function]string{SHA256: "blobs/", BLAKE3: "blobs/blake3/"} {
		d := Of(fn, []byte("x"))
		if got := d.BlobName(); got != want+d.Hash()+"/1" {
			t.Errorf("%s is called %s", fn, got)
		}
	}
}
