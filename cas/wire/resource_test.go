package wire

import (
	"errors"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
)

const netTestUUID = "3d1a3c1e-5a3f-4d5f-9c80-0123456789ab"

var (
	netSHA = digest.Of(digest.SHA256, []byte("abc"))
	netB3  = digest.Of(digest.BLAKE3, []byte("abc"))
)

func TestResourceNames(t *testing.T) {
	for name, want := range map[string]Resource{
		"blobs/" + netSHA.String():           {Digest: netSHA},
		"main/blobs/" + netSHA.String():      {Instance: "main", Digest: netSHA},
		"a/b c/..d/blobs/" + netSHA.String(): {Instance: "a/b c/..d", Digest: netSHA},
		"blobs/blake3/" + netB3.String():     {Digest: netB3},
		"zstd/blobs/" + netSHA.String():      {Instance: "zstd", Digest: netSHA},
		"i/compressed-blobs/zstd/" + netSHA.String(): {
			Instance: "i", Digest: netSHA, Compressor: repb.Compressor_ZSTD,
		},
		"compressed-blobs/zstd/blake3/" + netB3.String(): {
			Digest: netB3, Compressor: repb.Compressor_ZSTD,
		},
	} {
		got, err := ParseRead(name)
		if err != nil || got != want {
			t.Errorf("parseRead(%q) = %+v, %v, want %+v", name, got, err, want)
		}
		if got.String() != name {
			t.Errorf("String() = %q, want %q", got, name)
		}

		rest := strings.TrimPrefix(strings.TrimPrefix(name, want.Instance), "/")
		upload := "uploads/" + netTestUUID + "/" + rest
		if want.Instance != "" {
			upload = want.Instance + "/" + upload
		}
		want.UUID = netTestUUID
		for _, metadata := range []string{"", "/", "/file.txt", "/a/blobs/c"} {
			got, err := ParseWrite(upload + metadata)
			if err != nil || got != want {
				t.Errorf("parseWrite(%q) = %+v, %v, want %+v", upload+metadata, got, err, want)
			}
			if got.String() != upload {
				t.Errorf("String() = %q, want %q", got, upload)
			}
		}
	}
}

func TestResourceNamesThatAreRefused(t *testing.T) {
	upload := "uploads/" + netTestUUID + "/"
	hash := netSHA.Hash()
	for _, name := range []string{
		"", "/", "blobs", "blobs/", "blobs//", "x/y/z", "blobs/" + hash, "blobs/" + hash + "/",
		"/blobs/" + hash + "/3",
		"a//blobs/" + hash + "/3",
		"a/../b/blobs/" + hash + "/3",
		"./blobs/" + hash + "/3",
		"a/actions/blobs/" + hash + "/3",
		"operations/blobs/" + hash + "/3",
		"a\x00b/blobs/" + hash + "/3",
		"blobs/" + hash + "/-3",
		"blobs/" + hash + "/+3",
		"blobs/" + hash + "/03",
		"blobs/" + hash + "/3x",
		"blobs/" + hash + "/9223372036854775808",
		"blobs/" + strings.ToUpper(hash) + "/3",
		"blobs/" + hash[2:] + "/3",
		"blobs/sha256/" + hash + "/3",
		"blobs/md5/900150983cd24fb0d6963f7d28e17f72/3",
		"compressed-blobs/" + hash + "/3",
		"compressed-blobs/identity/" + hash + "/3",
		"compressed-blobs/deflate/" + hash + "/3",
		"compressed-blobs/zstd/" + hash,
		strings.Repeat("a/", maxNameLength) + "blobs/" + hash + "/3",
	} {
		if r, err := ParseRead(name); !netInvalidName(err) {
			t.Errorf("parseRead(%.100q) = %+v, %v", name, r, err)
		}
		if r, err := ParseWrite(upload + name); !netInvalidName(err) {
			t.Errorf("parseWrite(%.100q) = %+v, %v", upload+name, r, err)
		}
	}
	for _, name := range []string{
		"blobs/" + hash + "/3",
		"uploads/blobs/" + hash + "/3",
		"uploads/1/blobs/" + hash + "/3",
		"uploads/" + strings.ReplaceAll(netTestUUID, "-", "_") + "/blobs/" + hash + "/3",
		"uploads/" + strings.ReplaceAll(netTestUUID, "a", "g") + "/blobs/" + hash + "/3",
		"uploads/uploads/" + netTestUUID + "/blobs/" + hash + "/3",
	} {
		if r, err := ParseWrite(name); !netInvalidName(err) {
			t.Errorf("parseWrite(%q) = %+v, %v", name, r, err)
		}
	}
	if r, err := ParseRead("blobs/" + hash + "/3/x"); !netInvalidName(err) {
		t.Errorf("parseRead with metadata = %+v, %v", r, err)
	}
}

func netInvalidName(err error) bool {
	return errors.Is(err, ErrInvalidName) || errors.Is(err, instance.ErrInvalid) || errors.Is(err, digest.ErrInvalid)
}

func TestNewUUID(t *testing.T) {
	a, b := NewUUID(), NewUUID()
	if a == b || !isUUID(a) || a[14] != '4' || !strings.ContainsRune("89ab", rune(a[19])) {
		t.Errorf("newUUID() = %q, %q", a, b)
	}
}

// Accepted names mean the same after they are written and parsed again.
func FuzzResourceNames(f *testing.F) {
	f.Add("main/x/blobs/" + netSHA.String())
	f.Add("uploads/" + netTestUUID + "/compressed-blobs/zstd/blake3/" + netB3.String() + "/meta")
	f.Fuzz(func(t *testing.T, name string) {
		for _, parse := range []func(string) (Resource, error){ParseRead, ParseWrite} {
			r, err := parse(name)
			if err != nil {
				if !netInvalidName(err) || r != (Resource{}) {
					t.Errorf("parse(%q) = %+v, %v", name, r, err)
				}
				continue
			}
			if !strings.HasPrefix(name, r.String()) || instance.Check(r.Instance) != nil {
				t.Errorf("parse(%q) = %+v", name, r)
			}
			if again, err := parse(r.String()); err != nil || again != r {
				t.Errorf("parse(%q) = %+v, %v, want %+v", r, again, err, r)
			}
		}
	})
}
